"""The words that chores are made of, one set of pools a split.

Keeps true: no word of one split is used in another, and no word for texts contains another, so that
`grep WORD` means the word. Leaves to chores.py: what is done with them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pools:
    """Words for texts and keys, stems of file names, names of folders, file extensions (no dot)."""

    words: list[str]
    stems: list[str]
    folders: list[str]
    extensions: list[str]

    @classmethod
    def of(cls, words: str, stems: str, folders: str, extensions: str) -> "Pools":
        """Pools from words with blanks between them."""
        return cls(words.split(), stems.split(), folders.split(), extensions.split())

    def all(self) -> list[str]:
        """Every word of the four pools."""
        return self.words + self.stems + self.folders + self.extensions


TRAIN = Pools.of(
    words="""
        amber apple basil birch bread brick butter candle carrot cedar cherry cloud clover copper coral cotton
        daisy desert eagle ember falcon feather fern flint forest garlic ginger glass hammer harbor hazel
        honey jasmine kettle lantern lemon linen lotus maple marble meadow melon mirror mustard needle nickel
        olive orange otter pepper pigeon planet plum pumpkin quartz rabbit raven river saddle salmon silver
        sparrow spice spruce sugar thunder tiger timber tulip turtle valley velvet violet walnut willow winter
    """,
    stems="""
        notes report journal inventory orders records diary ledger draft summary minutes roster
        budget recipes scores letters survey events tasks guests
    """,
    folders="archive depot studio office library kitchen project backup shelf cellar attic garage",
    extensions="txt md log dat bak tmp",
)

HELDOUT = Pools.of(
    words="""
        acorn anchor badger bamboo beacon beetle biscuit canyon castle cobalt comet cricket dolphin dragon
        engine fiddle gravel hornet island jungle kernel ladder magnet nutmeg oyster paddle parrot pebble
        pillow radish ribbon rocket saffron shovel spider teapot tunnel turnip walrus zipper
    """,
    stems="agenda catalog chapter expenses findings invoice memo outline payroll readings stock tickets",
    folders="barn cabin factory museum pantry vault workshop closet",
    extensions="rst ini out lst",
)

REGRESSION = Pools.of(
    words="bison cactus goblet helmet iguana jigsaw lizard muffin napkin orchid pencil quiver",
    stems="bulletin contract essay manual poem receipt schedule transcript",
    folders="basement drawer gallery hangar locker stable tower warehouse",
    extensions="doc asc",
)

POOLS = {"train": TRAIN, "heldout": HELDOUT, "regression": REGRESSION}
