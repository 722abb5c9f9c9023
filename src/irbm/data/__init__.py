"""Binary data as train / validation / test splits: `load`; the published files behind it: `fetch`.

A published file is looked for in the folder `$IRBM_DATA`, then in the user's cache folder, then downloaded
into the cache. Whatever is found is checked against its SHA-256 before it is used.

A user's own file is read by its ending:

- `.npz`, `.mat`, `.h5`: arrays `X_train`, `X_validation`, `X_test`, and `y_train`, `y_validation`, `y_test`
  if there are labels; or one `X`, and `y` if there are labels, which is split 80/10/10 at random by `seed`.
- `.npy`: one `X`, split likewise.
- `.csv`: commas, one example a line, split likewise. The first line is a header when it names a column `y` or
  `label`, which then holds the labels, or when none of its fields is a number.

X is (n, D) and holds only 0 and 1 unless `binarize` is given; y is one label per row.
"""

from irbm.data.loading import load
from irbm.data.sources import KNOWN, SOURCES, Source, fetch
from irbm.data.splits import Dataset, Split

__all__ = ["KNOWN", "SOURCES", "Dataset", "Source", "Split", "fetch", "load"]
