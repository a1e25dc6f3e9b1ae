import ctypes

import pytest

from trio_npu_dra.ascend.dcmi import _signatures as c


@pytest.mark.parametrize(
    ("struct", "size"),
    [
        (c.dcmi_chip_info, 100),
        (c.dcmi_chip_info_v2, 132),
        (c.dcmi_pcie_info, 28),
        (c.dcmi_pcie_info_all, 64),
        (c.dcmi_board_info, 16),
        (c.dcmi_die_id, 20),
        (c.dcmi_hbm_info, 32),
        (c.dcmi_ecc_info, 28),
        (c.dcmi_hccs_statues, 12),
        (c.dcmi_get_memory_info_stru, 112),
        (c.dcmi_memory_info, 16),
        (c.dcmi_proc_mem_info, 16),
        (c.dcmi_spod_info, 48),
        (c.dcmi_computing_resource, 96),
        (c.dcmi_media_resource, 56),
        (c.dcmi_soc_total_resource, 360),
        (c.dcmi_vdev_query_info, 256),
        (c.dcmi_vdev_query_stru, 264),
        (c.dcmi_create_vdev_res_stru, 104),
        (c.dcmi_create_vdev_out, 52),
        (c.dcmi_event_filter, 48),
        (c.dcmi_event, 360),
    ],
)
def test_structs_have_the_sizes_of_the_vendors_header(
    struct: type[ctypes.Structure], size: int
) -> None:
    """Each struct is as long as gcc makes the vendor's on x86-64 and aarch64."""
    assert ctypes.sizeof(struct) == size


def test_fields_lie_where_the_vendors_do() -> None:
    """The fields that padding could move are at the vendor's offsets."""
    assert c.dcmi_hbm_info.memory_usage.offset == 16
    assert c.dcmi_get_memory_info_stru.hugepagesize.offset == 24
    assert c.dcmi_chip_info_v2.npu_name.offset == 100
    assert c.dcmi_soc_total_resource.computing.offset == 208
    assert c.dcmi_soc_total_resource.media.offset == 304
    assert c.dcmi_vdev_query_stru.query_info.offset == 8
    assert c.dcmi_vdev_query_info.container_id.offset == 32
    assert c.dcmi_vdev_query_info.computing.offset == 104
    assert c.dcmi_computing_resource.memory_size.offset == 24
    assert c.dcmi_computing_resource.device_aicpu.offset == 54
    assert c.dcmi_computing_resource.vdev_memory_total.offset == 64
    assert c.dcmi_create_vdev_res_stru.template_name.offset == 8
    assert c.dcmi_create_vdev_out.vfg_id.offset == 16
    assert c.dcmi_event.dms_event.offset == 8
    assert c.dcmi_dms_fault_event.alarm_raised_time.offset == 24
