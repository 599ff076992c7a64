"""The kinds of file chores: each makes one instance from a random generator and a split's words.

Keeps true: one short bash command does a chore; what must come out is worked out here in Python, not by that
command. Leaves to generate.py: which instances there are, and their files on disk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from words import Pools

ANSWER = "answer.txt"
ORDINALS = {1: "first", 2: "second", 3: "third"}


@dataclass(frozen=True)
class Chore:
    """One instance; paths are relative to /app. From `looks` on: what an expert may do and say."""

    kind: str
    instruction: str
    files: dict[str, str]
    """What is there at first: path to content."""
    expected: dict[str, str]
    """What must be made or changed: path to content."""
    command: str
    """The one command that does it."""
    looks: tuple[str, str]
    """Two commands that only look."""
    check: str
    """Shows that it is done."""
    mistake: str
    """A plausible command that ends in an error."""
    closing: str
    """The last answer when the result was not looked at."""
    checked: str
    """The last answer after `check`."""
    gone: tuple[str, ...] = ()
    """What must not be there any more."""


def _lines(rng: Random, pools: Pools, count: int, without: str = "") -> list[list[str]]:
    """`count` lines of three words each, none of them `without`."""
    words = [word for word in pools.words if word != without]
    return [rng.sample(words, 3) for _ in range(count)]


def _text(lines: list[list[str]]) -> str:
    return "".join(" ".join(line) + "\n" for line in lines)


def _file(rng: Random, pools: Pools, extension: str = "txt") -> str:
    return f"{rng.choice(pools.stems)}.{extension}"


def _stem(path: str) -> str:
    return path.rsplit(".", 1)[0]


def _answer_chore(
    kind: str, instruction: str, file: str, content: str, answer: str, command: str, mistake: str, what: str
) -> Chore:
    """A chore on one file whose result is answer.txt; `what` names the result in the closing sentence."""
    value = answer.strip()
    return Chore(
        kind=kind,
        instruction=instruction,
        files={file: content},
        expected={ANSWER: answer},
        command=f"{command} > {ANSWER}",
        looks=("ls", f"head -n 3 {file}"),
        check=f"cat {ANSWER}",
        mistake=f"{mistake} > {ANSWER}",
        closing=f"Done: {what} is in {ANSWER}.",
        checked=f"Done: {ANSWER} holds {value}." if "\n" not in value else f"Done: {ANSWER} holds {what}.",
    )


def count(rng: Random, pools: Pools) -> Chore:
    """Lines of a file that hold a word."""
    file, word = _file(rng, pools), rng.choice(pools.words)
    lines = _lines(rng, pools, rng.randint(8, 14), without=word)
    hits = rng.sample(range(len(lines)), rng.randint(2, 6))
    for line in hits:
        lines[line][rng.randrange(3)] = word
    # Twice in one line is still one line.
    lines[hits[0]] = [word, lines[hits[0]][1], word]
    instruction = rng.choice(
        (
            f"Count the lines of {file} that contain {word} and write the number to {ANSWER}.",
            f"How many lines in {file} have the word {word}? Put the number in {ANSWER}.",
            f"{ANSWER} should hold the number of lines with {word} in {file}.",
            f"In {file}, count the lines that mention {word}. Save the count in {ANSWER}.",
        )
    )
    command, mistake = f"grep -c {word} {file}", f"grep -c {word} {_stem(file)}"
    answer = f"{len(hits)}\n"
    return _answer_chore("count", instruction, file, _text(lines), answer, command, mistake, "the number")


def find(rng: Random, pools: Pools) -> Chore:
    """The path of a file, by its name, in a tree of folders."""
    folder, *inner = rng.sample(pools.folders, 4)
    branches = ((inner[0], inner[1]), (inner[0], inner[2]), (inner[2], inner[1]))
    paths = [f"{folder}/{outer}/{deep}" for outer, deep in branches]
    names = rng.sample(pools.stems, 6)
    files = {f"{paths[i % 3]}/{name}.txt": _text(_lines(rng, pools, 2)) for i, name in enumerate(names)}
    target = rng.choice(sorted(files))
    name = target.rsplit("/", 1)[1]
    instruction = rng.choice(
        (
            f"Find {name} somewhere under {folder} and write its path, starting with {folder}/, to {ANSWER}.",
            f"Where in {folder} is the file {name}? Put its path, from {folder}/ on, in {ANSWER}.",
            f"{name} is in a subfolder of {folder}. Save its path, beginning with {folder}/, in {ANSWER}.",
            f"{ANSWER} should hold the path ({folder}/...) of {name}, which is somewhere in {folder}.",
        )
    )
    return Chore(
        kind="find",
        instruction=instruction,
        files=files,
        expected={ANSWER: target + "\n"},
        command=f"find {folder} -name {name} > {ANSWER}",
        looks=("ls", f"ls {folder}"),
        check=f"cat {ANSWER}",
        mistake=f"ls {folder}/{name} > {ANSWER}",
        closing=f"Done: the path is in {ANSWER}.",
        checked=f"Done: {ANSWER} holds {target}.",
    )


def column(rng: Random, pools: Pools) -> Chore:
    """One column of a comma-separated file."""
    file, number = _file(rng, pools, "csv"), rng.randint(1, 3)
    rows = [[*rng.sample(pools.words, 2), str(rng.randint(10, 99))] for _ in range(rng.randint(5, 9))]
    for row in rows:
        rng.shuffle(row)
    instruction = rng.choice(
        (
            f"Write the {ORDINALS[number]} column of {file} to {ANSWER}.",
            f"Put only the {ORDINALS[number]} field of each line of {file} in {ANSWER}.",
            f"{file} is comma-separated. Save its {ORDINALS[number]} column in {ANSWER}.",
            f"Extract column {number} of {file} into {ANSWER}.",
        )
    )
    content = "".join(",".join(row) + "\n" for row in rows)
    answer = "".join(row[number - 1] + "\n" for row in rows)
    command, mistake = f"cut -d, -f{number} {file}", f"cut -d, -c {file}"
    return _answer_chore("column", instruction, file, content, answer, command, mistake, "the column")


def value(rng: Random, pools: Pools) -> Chore:
    """The value of a key in a file of key=value lines."""
    file = _file(rng, pools, "conf")
    keys = rng.sample(pools.words, rng.randint(6, 10))
    values = [f"{word}{rng.randint(10, 99)}" for word in rng.sample(pools.words, len(keys))]
    chosen = rng.randrange(len(keys))
    lines = [f"{key}={text}\n" for key, text in zip(keys, values, strict=True)]
    # A commented line with the same key: only the one at the line's start counts.
    lines.insert(rng.randrange(len(lines)), f"#{keys[chosen]}={rng.choice(pools.words)}\n")
    instruction = rng.choice(
        (
            f"Write the value of {keys[chosen]} in {file} to {ANSWER}.",
            f"What is {keys[chosen]} set to in {file}? Put the value in {ANSWER}.",
            f"Read the setting {keys[chosen]} from {file} and save its value in {ANSWER}.",
            f"{ANSWER} should hold the value that {file} gives to {keys[chosen]}.",
        )
    )
    command = f"grep ^{keys[chosen]}= {file} | cut -d= -f2"
    mistake = f"grep ^{keys[chosen]}= {_stem(file)}"
    answer = values[chosen] + "\n"
    return _answer_chore("value", instruction, file, "".join(lines), answer, command, mistake, "the value")


def rename(rng: Random, pools: Pools) -> Chore:
    """All files of one extension in a folder get another."""
    folder = rng.choice(pools.folders)
    old, new, other = rng.sample(pools.extensions, 3)
    stems = rng.sample(pools.stems, rng.randint(3, 5))
    matching = {stem: _text(_lines(rng, pools, 2)) for stem in stems[:-1]}
    files = {f"{folder}/{stem}.{old}": text for stem, text in matching.items()}
    files[f"{folder}/{stems[-1]}.{other}"] = _text(_lines(rng, pools, 2))
    instruction = rng.choice(
        (
            f"Rename every .{old} file in {folder} to .{new}.",
            f"In the folder {folder}, change the extension of all .{old} files to .{new}.",
            f"The .{old} files in {folder} should end in .{new} instead. Rename them.",
            f"Give each .{old} file in {folder} the extension .{new}.",
        )
    )
    return Chore(
        kind="rename",
        instruction=instruction,
        files=files,
        expected={f"{folder}/{stem}.{new}": text for stem, text in matching.items()},
        gone=tuple(f"{folder}/{stem}.{old}" for stem in matching),
        command=f"for f in {folder}/*.{old}; do mv $f ${{f%.{old}}}.{new}; done",
        looks=("ls", f"ls {folder}"),
        check=f"ls {folder}",
        mistake=f"mv {folder}/*.{old} {folder}/*.{new}",
        closing=f"Done: the .{old} files are .{new} files now.",
        checked=f"Done: {folder} has .{new} files and no .{old} file.",
    )


def replace(rng: Random, pools: Pools) -> Chore:
    """Every occurrence of a word in a file becomes another word."""
    file = _file(rng, pools)
    old, new = rng.sample(pools.words, 2)
    lines = _lines(rng, pools, rng.randint(5, 9), without=old)
    hits = rng.sample(range(len(lines)), 3)
    for line in hits:
        lines[line][rng.randrange(3)] = old
    lines[hits[0]] = [old, lines[hits[0]][1], old]
    changed = [[new if word == old else word for word in line] for line in lines]
    instruction = rng.choice(
        (
            f"Replace every {old} in {file} with {new}.",
            f"In {file}, change the word {old} to {new} everywhere.",
            f"Edit {file}: each {old} should become {new}.",
            f"{file} says {old} where it should say {new}. Correct all of them in the file.",
        )
    )
    return Chore(
        kind="replace",
        instruction=instruction,
        files={file: _text(lines)},
        expected={file: _text(changed)},
        command=f"sed -i 's/{old}/{new}/g' {file}",
        looks=("ls", f"grep {old} {file}"),
        check=f"cat {file}",
        mistake=f"sed -i 's/{old}/{new}/g' {_stem(file)}",
        closing=f"Done: {file} says {new} now.",
        checked=f"Done: {file} has no {old} any more.",
    )


def total(rng: Random, pools: Pools) -> Chore:
    """The sum of one column of numbers."""
    file, number = _file(rng, pools), rng.randint(2, 3)
    words = rng.sample(pools.words, rng.randint(5, 9))
    rows = [[word, str(rng.randint(1, 40)), str(rng.randint(1, 40))] for word in words]
    instruction = rng.choice(
        (
            f"Add up the numbers in the {ORDINALS[number]} column of {file} and write the sum to {ANSWER}.",
            f"What is the total of the {ORDINALS[number]} column of {file}? Put it in {ANSWER}.",
            f"Sum column {number} of {file} into {ANSWER}.",
            f"{ANSWER} should hold the sum of the {ORDINALS[number]} column in {file}.",
        )
    )
    content = "".join(" ".join(row) + "\n" for row in rows)
    answer = f"{sum(int(row[number - 1]) for row in rows)}\n"
    command = f"awk '{{s+=${number}}} END {{print s}}' {file}"
    mistake = f"cut -d' ' -f{number} {file} | paste -sd+ | bc"
    return _answer_chore("total", instruction, file, content, answer, command, mistake, "the sum")


def order(rng: Random, pools: Pools) -> Chore:
    """Sorting: the distinct lines in order, or the largest or smallest number."""
    file, what = _file(rng, pools), rng.choice(("unique", "largest", "smallest"))
    if what == "unique":
        words = rng.sample(pools.words, rng.randint(4, 7))
        items = words + rng.choices(words, k=4)
        instruction = rng.choice(
            (
                f"Sort the lines of {file}, drop the duplicates, and write them to {ANSWER}.",
                f"Put each different line of {file} once in {ANSWER}, in alphabetical order.",
                f"{ANSWER} should hold the sorted lines of {file} without repeats.",
            )
        )
        answer = "".join(f"{word}\n" for word in sorted(words))
        command, noun = f"sort -u {file}", "the sorted list"
    else:
        items = [str(number) for number in rng.sample(range(2, 1200), rng.randint(8, 14))]
        instruction = rng.choice(
            (
                f"Write the {what} number in {file} to {ANSWER}.",
                f"Which number in {file} is the {what}? Put it in {ANSWER}.",
                f"Find the {what} of the numbers in {file} and save it in {ANSWER}.",
            )
        )
        end, pick = ("tail", max) if what == "largest" else ("head", min)
        answer = f"{pick(map(int, items))}\n"
        command, noun = f"sort -n {file} | {end} -n 1", f"the {what} number"
    rng.shuffle(items)
    content = "".join(f"{item}\n" for item in items)
    mistake = command.replace(file, _stem(file)).split(" |")[0]
    return _answer_chore("order", instruction, file, content, answer, command, mistake, noun)


def move(rng: Random, pools: Pools) -> Chore:
    """A new folder, and a file moved or copied into it. Never trained on."""
    folder, copy = rng.choice(pools.folders), rng.random() < 0.5
    file, other = (f"{stem}.txt" for stem in rng.sample(pools.stems, 2))
    files = {path: _text(_lines(rng, pools, 2)) for path in (file, other)}
    verb, tool = ("copy", "cp") if copy else ("move", "mv")
    instruction = rng.choice(
        (
            f"Make a folder {folder} and {verb} {file} into it.",
            f"Create the directory {folder}, then {verb} {file} there.",
            f"{verb.capitalize()} {file} into a new folder named {folder}.",
            f"There should be a new folder {folder} here. {verb.capitalize()} the file {file} into it.",
        )
    )
    return Chore(
        kind="move",
        instruction=instruction,
        files=files,
        expected={f"{folder}/{file}": files[file]},
        gone=() if copy else (file,),
        command=f"mkdir {folder} && {tool} {file} {folder}/",
        looks=("ls", f"head -n 3 {file}"),
        check=f"ls {folder}",
        mistake=f"{tool} {file} {folder}/",
        closing=f"Done: {file} is in {folder}.",
        checked=f"Done: {folder} holds {file}.",
    )


TRAINED_KINDS: dict[str, Callable[[Random, Pools], Chore]] = {
    maker.__name__: maker for maker in (count, find, column, value, rename, replace, total, order)
}
REGRESSION_KINDS: dict[str, Callable[[Random, Pools], Chore]] = {"move": move}
