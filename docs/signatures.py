"""Signatures in the API reference with numbers in them: a default `Settings.n_iter` is shown as 50."""

from typing import Any

import griffe

HOLDERS = {"Settings": "irbm.training.settings.Settings", "GreedySettings": "irbm.training.frank_wolfe.GreedySettings"}


class Defaults(griffe.Extension):
    """Looks up the defaults of estimators' fields that are fields of the settings of training."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        room = pkg["estimators"]
        for module in room.modules.values():
            for kind in module.classes.values():
                for field in kind.attributes.values():
                    holder, _dot, name = str(field.value).partition(".")
                    if holder in HOLDERS:
                        field.value = pkg[HOLDERS[holder].removeprefix("irbm.")][name].value
