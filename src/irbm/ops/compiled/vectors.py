"""What the compiler would not make vectors of by itself, written in its own language: a few lines for each.

Vectors are as wide as the arrays want them; the compiler cuts them to what the processor has. An array is a flat one of
float32, given with the place of the first number in it. Places are not checked: whoever calls must know that they are
there.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import importlib
from typing import Any

from irbm.ops.compiled.loops import numba

WIDTH = 32  # columns that are added up together
BITS = 4  # of a table's index
ENTRIES = 2**BITS
TABLES = 32 // BITS  # that the bits of one word look into
TABLE = ENTRIES * WIDTH  # numbers
TILE = 4  # rows and columns

if numba is not None:
    ir: Any = importlib.import_module("llvmlite.ir")
    types: Any = importlib.import_module("numba.core.types")
    intrinsic: Any = importlib.import_module("numba.extending").intrinsic
    INT = ir.IntType(64)

    FLAT = types.Array(types.float32, 1, "C")

    def _vector(n: int) -> Any:
        return ir.VectorType(ir.FloatType(), n)

    def _all(n: int, value: float) -> Any:
        return ir.Constant(_vector(n), [value] * n)

    def _int(value: int) -> Any:
        return ir.Constant(INT, value)

    def _data(context, builder, kind, value):
        return context.make_array(kind)(context, builder, value).data

    def _place(builder, data, at, offset, n):
        """A pointer to n numbers."""
        where = builder.add(at, _int(offset))
        return builder.bitcast(builder.gep(data, [where]), _vector(n).as_pointer())

    def _load(builder, data, at, offset, n):
        return builder.load(_place(builder, data, at, offset, n), align=4)

    def _store(builder, value, data, at, offset, n):
        builder.store(value, _place(builder, data, at, offset, n), align=4)

    @intrinsic
    def words_of(typing, x, at):
        """Which of the 32 numbers from a place on are not 0, one bit each from the lowest on; above, which are 1."""

        def generate(context, builder, signature, arguments):
            x_32 = _load(builder, _data(context, builder, signature.args[0], arguments[0]), arguments[1], 0, 32)
            on_32 = builder.fcmp_unordered("!=", x_32, _all(32, 0.0))  # NaN is, and is not 1
            one_32 = builder.fcmp_ordered("==", x_32, _all(32, 1.0))
            on, one = (builder.zext(builder.bitcast(bits, ir.IntType(32)), INT) for bits in (on_32, one_32))
            return builder.or_(on, builder.shl(one, _int(32)))

        return types.uint64(FLAT, types.uint64), generate

    @intrinsic
    def write_table(typing, matrix, first, second, third, fourth, tables, at):
        """The sums of every subset of four rows, ``WIDTH`` columns of them: entry n has the rows of its bits."""

        def generate(context, builder, signature, arguments):
            source = _data(context, builder, signature.args[0], arguments[0])
            target = _data(context, builder, signature.args[5], arguments[5])
            rows = [_load(builder, source, at, 0, WIDTH) for at in arguments[1:5]]
            entries = [_all(WIDTH, 0.0)]
            for n in range(1, ENTRIES):
                top = n.bit_length() - 1
                rest = n - (1 << top)
                entries.append(builder.fadd(entries[rest], rows[top]) if rest else rows[top])
            for n, entry in enumerate(entries):
                _store(builder, entry, target, arguments[6], n * WIDTH, WIDTH)
            return context.get_dummy_value()

        place = types.uint64
        return types.void(FLAT, place, place, place, place, FLAT, place), generate

    @intrinsic
    def add_entries(typing, total, at, tables, word):
        """Add to ``WIDTH`` numbers what a word's bits, four at a time, look up in the tables."""

        def generate(context, builder, signature, arguments):
            target = _data(context, builder, signature.args[0], arguments[0])
            source = _data(context, builder, signature.args[2], arguments[2])
            wide = builder.zext(arguments[3], INT)
            found = []
            for table in range(TABLES):
                entry = builder.and_(builder.lshr(wide, _int(BITS * table)), _int(ENTRIES - 1))
                found.append(_load(builder, source, builder.mul(entry, _int(WIDTH)), table * TABLE, WIDTH))
            while len(found) > 1:  # in pairs
                found = [builder.fadd(*found[i : i + 2]) for i in range(0, len(found), 2)]
            sum_ = builder.fadd(_load(builder, target, arguments[1], 0, WIDTH), found[0])
            _store(builder, sum_, target, arguments[1], 0, WIDTH)
            return context.get_dummy_value()

        return types.void(FLAT, types.uint64, FLAT, types.uint32), generate

    @intrinsic
    def transpose_tile(typing, source, at, step, target, to, stride):
        """Write the rows of a tile of four by four as columns; rows are ``step`` and ``stride`` numbers apart."""

        def generate(context, builder, signature, arguments):
            source, at, step, target, to, stride = arguments
            read = _data(context, builder, signature.args[0], source)
            write = _data(context, builder, signature.args[3], target)
            rows = [_load(builder, read, builder.add(at, builder.mul(step, _int(i))), 0, TILE) for i in range(TILE)]

            def mixed(a, b, *lanes):
                return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), TILE), lanes))

            low, high = (0, 4, 1, 5), (2, 6, 3, 7)
            halves = [mixed(rows[i], rows[i + 2], *lanes) for i in (0, 1) for lanes in (low, high)]
            columns = [mixed(halves[i], halves[i + 2], *lanes) for i in (0, 1) for lanes in (low, high)]
            for i, column in enumerate(columns):
                _store(builder, column, write, builder.add(to, builder.mul(stride, _int(i))), 0, TILE)
            return context.get_dummy_value()

        place = types.uint64
        return types.void(FLAT, place, place, FLAT, place, place), generate
