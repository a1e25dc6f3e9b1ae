import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from trio_npu_dra.ascend.dcmi import _functions as f
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.client import GONE, Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, LibraryMissing, NotReady, NotSupported
from trio_npu_dra.ascend.dcmi.types import ChipRef, DcmiCall, DieKind, EccCounts, Link, Memory

VERSION = "21.0.4\ufffd\ufffd"


def compile_library(path: Path, source: str, *options: str) -> None:
    """Make a shared library of C source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)


def driver_folder(root: Path) -> Path:
    """Where the installer puts the library in most versions."""
    return root / "usr/local/Ascend/driver/lib64/driver"


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A library of a version that has few functions, below a root of its own."""
    root = tmp_path_factory.mktemp("old")
    source = """
    #include <string.h>
    struct chip { char type[32], name[32], version[32]; unsigned cores; };
    int dcmi_init(void) { return -8005; }
    int dcmi_get_device_chip_info(int card, int device, struct chip *out) {
        strcpy(out->name, "910A");
        out->cores = 32;
        memset(out + 1, 7, 200); /* a version of the future, with a longer struct */
        return 0;
    }
    int dcmi_get_device_die(int card, int device, unsigned *out) {
        for (int i = 0; i < 5; i++)
            out[i] = 16 * card + i;
        return 0;
    }
    int dcmi_get_device_pcie_info(int card, int device, unsigned *out) {
        memset(out, 0x11, 4 * sizeof *out); /* of its maker: four numbers */
        out[4] = 0x1f;
        out[5] = 0xc1;
        out[6] = 7;
        return 0;
    }
    int dcmi_get_device_memory_info_v2(int card, int device, unsigned long long *out) {
        out[0] = 8192;
        out[1] = 50ULL << 32 | 1600; /* percent used, MHz */
        return 0;
    }
    int dcmi_get_device_ecc_info(int card, int device, int memory, unsigned *out) {
        for (unsigned i = 0; i < 9; i++)
            out[i] = memory == 2 ? 10 * i : 1; /* two words more than the vendor's header has */
        out[0] = card; /* whether they are counted */
        return 0;
    }
    int dcmi_get_driver_version(char *out, unsigned size) {
        strncpy(out, "21.0.4\\xff\\x1b ", size); /* no UTF-8, and ESC */
        return 0;
    }
    """
    compile_library(driver_folder(root) / "libdcmi.so", source)
    return Library(root, {}).load()


def test_the_driver_folders_below_the_host_root_are_searched(old_library: Library) -> None:
    """Without LD_LIBRARY_PATH the library is found where the driver's installer puts it."""
    assert old_library.path.endswith("usr/local/Ascend/driver/lib64/driver/libdcmi.so")
    assert Dcmi(old_library).library_path == old_library.path


def test_each_call_is_reported_with_its_code(old_library: Library) -> None:
    """Metrics are made of it; a function that the library lacks is not called.

    Texts end at their first NUL, without blanks around; no byte is an error.
    """
    calls: list[DcmiCall] = []
    before = time.perf_counter()
    root = Path(old_library.path.removesuffix("usr/local/Ascend/driver/lib64/driver/libdcmi.so"))
    dcmi = Dcmi.at(root, calls.append)
    with pytest.raises(DcmiError):
        dcmi.init()
    with pytest.raises(NotSupported, match="has no such function") as caught:
        dcmi.health(ChipRef(0, 0))
    assert caught.value.code == -8255
    assert dcmi.driver_version() == VERSION
    assert [(call.function, call.code) for call in calls] == [
        ("dcmi_init", -8005),
        ("dcmi_get_driver_version", 0),
    ]
    assert 0 <= sum(call.seconds for call in calls) <= time.perf_counter() - before


def test_facts_come_from_the_older_calls_too(old_library: Library) -> None:
    """They know the vector die only, no PCI domain, and what is used of memory in percent.

    A longer struct, as of a version of the future, does no harm.
    """
    dcmi, chip = Dcmi(old_library), ChipRef(1, 0)
    info = dcmi.chip_info(chip)
    assert (info.chip_name, info.npu_name, info.ai_cores) == ("910A", "", 32)
    assert dcmi.die_id(chip, DieKind.VDIE) == (16, 17, 18, 19, 20)
    with pytest.raises(NotSupported):
        dcmi.die_id(chip, DieKind.DDIE)
    assert dcmi.pci_bus_id(chip) == "c1:1f.7"
    assert dcmi.ddr(chip) == Memory(size_mib=8192, used_mib=4096)


def test_each_count_of_errors_is_its_own(old_library: Library) -> None:
    """Since the start and ever; no count of single-bit pages; none at all while ECC is off."""
    dcmi = Dcmi(old_library)
    assert dcmi.hbm_errors(ChipRef(1, 0)) == EccCounts(
        single_bit=10, double_bit=20, single_bit_ever=30, double_bit_ever=40, isolated_pages=60
    )
    assert dcmi.hbm_errors(ChipRef(0, 0)) is None


@pytest.fixture(scope="module")
def mute_library(tmp_path_factory: pytest.TempPathFactory) -> Dcmi:
    """A library that says of each call that it succeeded, and writes nothing."""
    root = tmp_path_factory.mktemp("mute")
    functions = [one for one in vars(f).values() if isinstance(one, f.Function)]
    names = {name for one in functions if (name := one.names[f.FIRST]) is not None}
    source = "\n".join(f"int {name}(void) {{ return 0; }}" for name in sorted(names))
    compile_library(driver_folder(root) / "libdcmi.so", source)
    return Dcmi.load(root)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (Dcmi.card_list, DcmiError),
        (Dcmi.units, DcmiError),
        (Dcmi.is_npu, DcmiError),
        (Dcmi.logic_id, DcmiError),
        (Dcmi.physical_id, DcmiError),
        (Dcmi.health, GONE),
        (Dcmi.error_codes, DcmiError),
        (Dcmi.processes, DcmiError),
        (Dcmi.network_health, DcmiError),
        (partial(Dcmi.address, version=4), None),
        (partial(Dcmi.address, version=6), None),
        (partial(Dcmi.gateway, version=4), None),
        (Dcmi.mac_address, None),
        (Dcmi.multi_die_policy, DcmiError),
        (Dcmi.vnpu_mode, DcmiError),
        (Dcmi.device_share, DcmiError),
        (Dcmi.vnpus, DcmiError),
        (Dcmi.total_resources, DcmiError),
        (Dcmi.is_hccs_up, DcmiError),
        (Dcmi.super_pod, None),
        (Dcmi.super_pod_type, None),
        (Dcmi.rack_id, None),
        (Dcmi.hbm_errors, None),
        (Dcmi.driver_version, ""),
        (partial(Dcmi.link, other=ChipRef(1, 0)), Link.UNKNOWN),
    ],
)
def test_an_answer_that_was_not_written_is_none(
    mute_library: Dcmi, call: Callable[..., object], answer: object
) -> None:
    """Neither a zero, such as no cards or no faults, nor whatever was there before."""
    name = getattr(call, "func", call).__name__
    of_node = name in {"card_list", "multi_die_policy", "vnpu_mode", "driver_version"}
    of_number = name in {"units", "physical_id"}
    arguments = () if of_node else (0,) if of_number else (ChipRef(0, 0),)
    if answer is DcmiError:
        with pytest.raises(DcmiError):
            call(mute_library, *arguments)
    else:
        assert call(mute_library, *arguments) == answer


def test_ld_library_path_comes_first(tmp_path: Path) -> None:
    """A folder that the operator names wins over the installer's."""
    compile_library(driver_folder(tmp_path) / "libdcmi.so", "int dcmi_init(void) { return 0; }")
    compile_library(tmp_path / "named/libdcmi.so", "int dcmi_init(void) { return 0; }")
    named = tmp_path / "named"
    library = Library(tmp_path, {"LD_LIBRARY_PATH": f"/nowhere::{named}"}).load()
    assert library.path.startswith(str(named))


def test_what_the_library_links_to_is_loaded_by_path(tmp_path: Path) -> None:
    """libdcmi.so loads although the loader would not find its dependencies by itself.

    Each of these needs those before it.
    """
    folder = driver_folder(tmp_path)
    names = ("c_sec", "mmpa", "ascend_hal", "drvdsmi_host", "dsmi_network")
    needs: list[str] = []
    source = "int c_sec(void) { return 0; }"
    for name, after in zip(names, (*names[1:], "dcmi_init"), strict=True):
        path = (folder.parent / "common" if name == "c_sec" else folder) / f"lib{name}.so"
        compile_library(path, source, f"-Wl,-soname,{path.name},--no-as-needed", *needs)
        source = f"int {name}(void); int {after}(void) {{ return {name}(); }}"
        needs = [str(path)]
    compile_library(tmp_path / "usr/local/dcmi/libdcmi.so", source, *needs)
    Dcmi.load(tmp_path).init()


@pytest.mark.parametrize("named", [True, False])
def test_links_of_the_host_are_followed_in_its_tree(
    tmp_path: Path, simulator: Path, *, named: bool
) -> None:
    """Absolute ones too, in the middle of a path; a link to a file of ours is not followed."""
    root = tmp_path / "host"
    real = root / "data/Ascend/driver/lib64/driver/libdcmi.so"
    real.parent.mkdir(parents=True)
    shutil.copy(simulator / "libdcmi.so", real)
    (root / "usr/local/dcmi").mkdir(parents=True)
    (root / "usr/local/Ascend").symlink_to("/data/Ascend")
    shutil.copy(simulator / "libdcmi.so", tmp_path / "ours.so")
    (root / "usr/local/dcmi/libdcmi.so").symlink_to(tmp_path / "ours.so")
    environ = {"LD_LIBRARY_PATH": str(driver_folder(root))} if named else {}
    assert Library(root, environ).load().path == str(real)


def test_what_is_beside_the_library_is_loaded_with_it(tmp_path: Path, simulator: Path) -> None:
    """Each of its dependencies from where it is; one that is broken does not matter."""
    parts = [
        driver_folder(tmp_path) / "libdcmi.so",
        driver_folder(tmp_path) / "libmmpa.so",
        driver_folder(tmp_path) / "libdsmi_network.so",
        driver_folder(tmp_path).parent / "common/libc_sec.so",
        driver_folder(tmp_path).parent / "libdrvdsmi_host.so",
    ]
    for part in parts:
        part.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(simulator / "libdcmi.so", part)
    (driver_folder(tmp_path) / "libascend_hal.so").write_text("not a library")
    assert Library(tmp_path, {}).load().path == str(parts[0])
    mapped = Path("/proc/self/maps").read_text()
    assert [part for part in parts if str(part) not in mapped] == []


def test_an_empty_part_of_ld_library_path_is_no_folder(
    tmp_path: Path, simulator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above all not the working one: the daemon is root, and others must not choose its code."""
    for name in ("libdcmi.so", "libc_sec.so"):
        shutil.copy(simulator / "libdcmi.so", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LibraryMissing) as caught:
        Library(tmp_path / "host", {"LD_LIBRARY_PATH": ":/nowhere::"}).load()
    assert f"looked in /nowhere, {tmp_path}/host/usr/local/dcmi, " in str(caught.value)
    assert str(tmp_path / "lib") not in Path("/proc/self/maps").read_text()


def test_a_missing_library_says_where_it_was_looked_for(tmp_path: Path) -> None:
    """The error names the folders, the settings that help, and a file that does not load."""
    with pytest.raises(LibraryMissing) as caught:
        Library(tmp_path, {"LD_LIBRARY_PATH": "/opt/elsewhere"}).load()
    message = str(caught.value)
    assert "/opt/elsewhere" in message
    assert str(tmp_path / "usr/local/dcmi") in message
    assert "--host-root" in message
    assert "cannot open shared object file" in message
    folder = driver_folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "libdcmi.so").write_text("not a library")
    with pytest.raises(LibraryMissing, match=str(folder / "libdcmi.so")):
        Library(tmp_path, {}).load()


def test_an_answer_without_an_id_is_none(tmp_path: Path) -> None:
    """The library says that all is well, and writes nothing: the chip would have number -1."""
    silent = """
    int dcmi_get_device_logic_id(int *out, int card, int device) { return 0; }
    int dcmi_get_device_phyid_from_logicid(unsigned logic_id, unsigned *out) { return 0; }
    """
    compile_library(driver_folder(tmp_path) / "libdcmi.so", silent)
    dcmi = Dcmi(Library(tmp_path, {}).load())
    with pytest.raises(NotReady, match="without an id"):
        dcmi.logic_id(ChipRef(0, 0))
    with pytest.raises(NotReady, match="without an id"):
        dcmi.physical_id(0)


def test_an_address_with_a_mask_that_is_none_is_no_answer(tmp_path: Path) -> None:
    """Rather than an error of Python's, which would end the daemon."""
    source = """
    int dcmi_get_device_ip(int card, int device, int type, int id, char *ip, char *mask) {
        ip[0] = 10;
        mask[0] = 1; /* 1.0.0.0 */
        return 0;
    }
    """
    compile_library(driver_folder(tmp_path) / "libdcmi.so", source)
    with pytest.raises(DcmiError, match="no network mask"):
        Dcmi.load(tmp_path).address(ChipRef(0, 0), 4)
