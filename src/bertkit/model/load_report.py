"""What became of every tensor of a folder that was loaded, and what else is to be said of it.

In: names.  Out: one line for the log, or a row a tensor.  Next: pretrained.py
"""

from dataclasses import dataclass, field


@dataclass
class LoadReport:
    """What became of every tensor: its name on the side where it exists, sorted."""

    loaded: list[str] = field(default_factory=list)
    tied: list[str] = field(default_factory=list)  # a second copy on disk of a tensor that was loaded
    resized: list[str] = field(default_factory=list)  # loaded too, but for rows that pad the vocabulary
    newly_made: list[str] = field(default_factory=list)  # our names, drawn at random
    ignored: list[str] = field(default_factory=list)  # on disk, but this model has no place for them
    unknown_config_keys: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # sentences on what is unusual

    def summary(self) -> str:
        """Return one line with the counts, the names of what is new or ignored, and the remarks.

        >>> LoadReport(loaded=["a", "b"], newly_made=["nsp_head.bias"]).summary()
        '2 tensors loaded; newly made: nsp_head.bias'
        """
        parts = [f"{len(self.loaded)} tensors loaded"]
        for title, names in (
            ("tied", self.tied),
            ("cut to the vocabulary", self.resized),
            ("newly made", self.newly_made),
            ("ignored", self.ignored),
            ("config.json keys not read", self.unknown_config_keys),
        ):
            if names:
                parts.append(f"{title}: {', '.join(names)}")
        return "; ".join([*parts, *self.remarks])

    def fates(self) -> dict[str, str]:
        """Return {tensor: loaded, tied, resized, newly made or ignored} for every tensor, sorted by name."""
        table = dict.fromkeys(self.loaded, "loaded") | dict.fromkeys(self.resized, "resized")
        table |= dict.fromkeys(self.tied, "tied") | dict.fromkeys(self.newly_made, "newly made")
        return dict(sorted((table | dict.fromkeys(self.ignored, "ignored")).items()))
