"""CIFAR's files, on tiny sets of the same layouts whose checksums stand in for the official ones."""

import dataclasses
import hashlib
import pickle
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch

import gossamer as gm
from gossamer.data import cifar as module
from gossamer.data import load_data
from gossamer.tasks import make_task

NAMES = ("cifar10", "cifar100")
KINDS = ("python", "binary")


def md5_of(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def write_python(path, name, images, labels):
    batch = {b"data": images, b"batch_label": b"a batch", b"filenames": [b"a.png"] * len(labels)}
    batch |= {b"labels": labels} if name == "cifar10" else {b"fine_labels": labels, b"coarse_labels": [0] * len(labels)}
    path.write_bytes(pickle.dumps(batch, protocol=4))


def write_binary(path, name, images, labels):
    coarse = [] if name == "cifar10" else [np.full((len(labels), 1), 7, np.uint8)]
    path.write_bytes(np.hstack([*coarse, np.array(labels, np.uint8)[:, None], images]).tobytes())


WRITERS = {"python": write_python, "binary": write_binary}


@dataclasses.dataclass
class Fake:
    """A set of 4 images a file in both layouts, as folders and as archives, and what reading it must give."""

    name: str
    place: Path
    images: dict[str, list[np.ndarray]]
    labels: dict[str, list[int]]

    def keep(self, kind, *, archive):
        """Leave one layout only, as a folder or as an archive."""
        for other in KINDS:
            layout = getattr(module.SETS[self.name], other)
            if other != kind or archive:
                shutil.rmtree(self.place / layout.folder)
            if other != kind or not archive:
                (self.place / layout.archive).unlink()

    def check(self, data):
        for part, examples in (("train", data.train), ("test", data.test)):
            assert examples.x.dtype == torch.uint8 and examples.y.dtype == torch.int64
            assert examples.y.tolist() == self.labels[part]
            assert np.array_equal(examples.x.numpy().reshape(-1, 3072), np.concatenate(self.images[part]))
            assert examples.x.shape[1:] == (3, 32, 32)


def make_fake(name, place, monkeypatch):
    real, rng = module.SETS[name], np.random.default_rng(1)
    fake = Fake(name, place, {"train": [], "test": []}, {"train": [], "test": []})
    layouts = {}
    files = {kind: getattr(real, kind) for kind in KINDS}
    contents = {
        part: [
            (rng.integers(256, size=(4, 3072), dtype=np.uint8), rng.integers(real.num_classes, size=4).tolist())
            for _ in getattr(files["python"], part)
        ]
        for part in ("train", "test")
    }
    for part, batches in contents.items():
        fake.images[part] = [images for images, _ in batches]
        fake.labels[part] = [label for _, labels in batches for label in labels]
    for kind, layout in files.items():
        folder = place / layout.folder
        folder.mkdir(parents=True)
        sums = {}
        for part, batches in contents.items():
            for file, (images, labels) in zip(getattr(layout, part), batches, strict=True):
                WRITERS[kind](folder / file, name, images, labels)
                sums.setdefault(part, {})[file] = md5_of(folder / file)
        with tarfile.open(place / layout.archive, "w:gz") as tar:
            tar.add(folder, layout.folder)
        layouts[kind] = dataclasses.replace(layout, archive_md5=md5_of(place / layout.archive), **sums)
    monkeypatch.setitem(module.SETS, name, dataclasses.replace(real, **layouts))
    return fake


@pytest.fixture(params=NAMES)
def fake(request, tmp_path, monkeypatch):
    return make_fake(request.param, tmp_path / "data", monkeypatch)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No test reaches for the network."""

    def refuse(*args, **kwargs):
        raise ConnectionError("no route to host\nat all")

    monkeypatch.setattr("pooch.retrieve", refuse)


def refusal(name, place):
    with pytest.raises(gm.UserError) as error:
        load_data(name, str(place))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_layout_is_read_as_folder_and_as_archive(fake, kind, archive):
    fake.keep(kind, archive=archive)
    data = load_data(fake.name, str(fake.place))
    fake.check(data)
    assert data.num_classes == {"cifar10": 10, "cifar100": 100}[fake.name] and data.augments
    assert data.shape == (3, 32, 32)
    # What was unpacked is read the next time, and nothing else is left behind.
    fake.check(load_data(fake.name, str(fake.place)))
    layout = getattr(module.SETS[fake.name], kind)
    assert {path.name for path in fake.place.iterdir()} == {layout.folder} | ({layout.archive} if archive else set())


def test_a_task_crops_flips_and_normalises(fake):
    task = make_task(fake.name, "linear", str(fake.place))
    assert task.augments and task.prepare is module.SETS[fake.name].normalize
    outputs = task.model()(task.inputs(task.test.x, torch.float32))
    assert outputs.shape == (4, module.SETS[fake.name].num_classes)


def test_the_folder_may_come_from_the_environment_and_the_flag_goes_first(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("GOSSAMER_DATA", str(fake.place))
    fake.check(load_data(fake.name))
    assert str(tmp_path / "elsewhere") in refusal(fake.name, tmp_path / "elsewhere")


def bomb(trap):
    """A pickle that creates a file when it is read."""

    class Bomb:
        def __reduce__(self):
            return Path.touch, (trap,)

    return pickle.dumps(Bomb())


def test_a_tampered_file_is_refused_before_it_is_unpickled(fake, tmp_path):
    fake.keep("python", archive=False)
    layout, trap = module.SETS[fake.name].python, tmp_path / "exploded"
    file = fake.place / layout.folder / next(iter(layout.train))
    file.write_bytes(bomb(trap))
    says = refusal(fake.name, fake.place)
    assert not trap.exists()
    assert f"'{file}' is not the official file" in says and md5_of(file) in says and layout.train[file.name] in says
    pickle.loads(file.read_bytes())
    assert trap.exists()  # the bomb was live


def test_even_a_checked_pickle_can_name_arrays_only(fake, tmp_path, monkeypatch):
    fake.keep("python", archive=False)
    kind, trap = module.SETS[fake.name], tmp_path / "exploded"
    file = fake.place / kind.python.folder / next(iter(kind.python.train))
    file.write_bytes(bomb(trap))
    sums = kind.python.train | {file.name: md5_of(file)}
    layout = dataclasses.replace(kind.python, train=sums)
    monkeypatch.setitem(module.SETS, fake.name, dataclasses.replace(kind, python=layout))
    with pytest.raises(pickle.UnpicklingError, match="which is no array"):
        load_data(fake.name, str(fake.place))
    assert not trap.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: b""])
def test_a_damaged_file_is_refused(fake, kind, damage):
    fake.keep(kind, archive=False)
    layout = getattr(module.SETS[fake.name], kind)
    file = fake.place / layout.folder / next(iter(layout.test))
    file.write_bytes(damage(file.read_bytes()))
    assert f"'{file}' is not the official file" in refusal(fake.name, fake.place)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file_is_named(fake, kind):
    fake.keep(kind, archive=False)
    layout = getattr(module.SETS[fake.name], kind)
    file = fake.place / layout.folder / next(iter(layout.train))
    file.unlink()
    assert f"cannot read '{file}' (No such file or directory)" in refusal(fake.name, fake.place)


def test_a_damaged_archive_is_refused_and_nothing_is_unpacked(fake):
    fake.keep("python", archive=True)
    layout = module.SETS[fake.name].python
    archive = fake.place / layout.archive
    archive.write_bytes(archive.read_bytes()[:-100])
    assert f"'{archive}' is not the official file" in refusal(fake.name, fake.place)
    assert [path.name for path in fake.place.iterdir()] == [layout.archive]


def test_an_archive_that_reaches_outside_is_refused(fake, tmp_path, monkeypatch):
    fake.keep("python", archive=True)
    kind = module.SETS[fake.name]
    archive = fake.place / kind.python.archive
    (tmp_path / "evil").write_text("evil")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "evil", "../../escaped")
    layout = dataclasses.replace(kind.python, archive_md5=md5_of(archive))
    monkeypatch.setitem(module.SETS, fake.name, dataclasses.replace(kind, python=layout))
    assert f"cannot unpack '{archive}' (OutsideDestinationError)" in refusal(fake.name, fake.place)
    assert not list(tmp_path.rglob("escaped")) and [path.name for path in fake.place.iterdir()] == [archive.name]


def test_a_set_unpacked_by_another_process_meanwhile_is_taken(fake, monkeypatch):
    layout = module.SETS[fake.name].python
    found = module.unpack(fake.place / layout.archive, layout.archive_md5, layout.folder)
    assert found == fake.place / layout.folder and (found / next(iter(layout.test))).is_file()
    assert not list(fake.place.glob(".unpacking-*"))


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_set_without_a_network_says_what_to_put_where(name, tmp_path):
    says = refusal(name, tmp_path)
    layout = module.SETS[name].python
    assert says.startswith(f"{name} is not in '{tmp_path}' and cannot be downloaded (ConnectionError)")
    assert f"put {layout.folder}/ or {layout.archive}" in says and "--data-dir or GOSSAMER_DATA" in says


def test_nothing_but_the_error_is_written_when_nobody_watches(tmp_path, monkeypatch, caplog):
    monkeypatch.undo()  # the real pooch, on an address where nothing listens
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    monkeypatch.setattr(module, "URL", "http://127.0.0.1:9/")
    assert "(ConnectionError)" in refusal("cifar10", tmp_path)
    assert not caplog.records


def test_a_download_with_a_wrong_checksum_is_refused(tmp_path, monkeypatch):
    def wrong(*args, **kwargs):
        raise ValueError("MD5 hash of downloaded file\ndoes not match")

    monkeypatch.setattr("pooch.retrieve", wrong)
    assert "(what came has a wrong checksum)" in refusal("cifar10", tmp_path)


def test_without_pooch_local_files_are_read_and_others_asked_for(fake, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    fake.check(load_data(fake.name, str(fake.place)))
    assert "(pooch is not installed)" in refusal(fake.name, tmp_path / "none")


def test_a_download_is_checked_unpacked_and_read(fake, tmp_path, monkeypatch):
    asked = []

    def retrieve(url, known_hash, fname, path, progressbar):
        asked.append((url.rpartition("/")[2], known_hash, progressbar))
        Path(path).mkdir()
        return shutil.copy(fake.place / fname, path)

    monkeypatch.setattr("pooch.retrieve", retrieve)
    fake.check(load_data(fake.name, str(tmp_path / "new")))
    fake.check(load_data(fake.name, str(tmp_path / "new")))
    layout = module.SETS[fake.name].python
    # Once, and without a bar, since nobody watches a test.
    assert asked == [(layout.archive, f"md5:{layout.archive_md5}", False)]


def test_a_file_as_data_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert f"data folder '{tmp_path / 'file'}' is a file" in refusal("cifar10", tmp_path / "file")
