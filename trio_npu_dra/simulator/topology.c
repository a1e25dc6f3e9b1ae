/* How chips are joined: to each other, to CPUs, into a super pod; and the policies of sharing. */
#include <string.h>

#include "board.h"

EXPORT int dcmi_get_topo_info_by_device_id(int card_id1, int device_id1, int card_id2,
                                           int device_id2, int *topo_type)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_with_facts(__func__, card_id1, device_id1, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (topo_type == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (facts.has_topology == 0) {
        return DCMI_NOT_SUPPORT;
    }
    const struct board *board = board_lock();
    const struct slot *first = cards_find(card_id1, device_id1);
    const struct slot *second = cards_find(card_id2, device_id2);
    code = first != NULL && second != NULL ? DCMI_OK : DCMI_INVALID_DEVICE_ID;
    if (code == DCMI_OK) {
        *topo_type = board->topology[first->index * BOARD_DEVICES + second->index];
    }
    board_unlock();
    return code;
}

EXPORT int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char *affinity_cpu,
                                                   int *length)
{
    struct board_device device;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (affinity_cpu == NULL || length == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (device.cpu_list[0] == '\0') {
        return DCMI_NOT_SUPPORT;
    }
    strcpy(affinity_cpu, device.cpu_list); /* the real one has no bound to obey either */
    *length = (int)strlen(device.cpu_list);
    return DCMI_OK;
}

/* --- dcmi_get_device_info: one door to many structs ------------------------------------------ */

static int give(void *buf, unsigned int *size, const void *value, unsigned int length)
{
    if (*size < length) {
        return DCMI_INVALID_PARAMETER;
    }
    memcpy(buf, value, length);
    *size = length;
    return DCMI_OK;
}

static int give_super_pod(const struct board_facts *facts, const struct board_device *device,
                          void *buf, unsigned int *size)
{
    if (facts->super_pod_size == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    struct dcmi_spod_info info = {
        .sdid = device->sdid,
        .super_pod_size = facts->super_pod_size,
        .super_pod_id = facts->super_pod_id,
        .server_index = facts->server_index,
        .chassis_id = facts->chassis_id,
        .super_pod_type = facts->super_pod_type,
    };
    return give(buf, size, &info, sizeof info);
}

static int give_hccs_status(const struct board_device *device, void *buf, unsigned int *size)
{
    if (device->hccs_status == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    struct dcmi_hccs_status status = {.pcs_status = 0, .hdlc_status = device->hccs_status};
    return give(buf, size, &status, sizeof status);
}

/* A chip nobody has split. Fields that vNPU queries do not know are filled with 0xFF. */
static int give_total_resource(const struct board_device *device, void *buf, unsigned int *size)
{
    struct dcmi_soc_total_resource total;
    memset(&total, 0xFF, sizeof total);
    total.vdev_num = 0;
    total.vfg_num = 0;
    total.vfg_bitmap = 0;
    total.computing.aic = (float)device->aicore_count;
    total.computing.memory_size = device->hbm_size != 0 ? device->hbm_size : device->ddr_size;
    return give(buf, size, &total, sizeof total);
}

EXPORT int dcmi_get_device_info(int card_id, int device_id, int main_cmd, unsigned int sub_cmd,
                                void *buf, unsigned int *size)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (buf == NULL || size == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (main_cmd == MAIN_CHIP_INF && sub_cmd == SUB_SPOD_INFO) {
        return give_super_pod(&facts, &device, buf, size);
    }
    if (main_cmd == MAIN_HCCS && sub_cmd == SUB_HCCS_STATUS) {
        return give_hccs_status(&device, buf, size);
    }
    if (main_cmd == MAIN_VDEV_MNG && sub_cmd == SUB_TOTAL_RESOURCE) {
        return give_total_resource(&device, buf, size);
    }
    return DCMI_NOT_SUPPORT;
}

/* --- policies -------------------------------------------------------------------------------- */

EXPORT int dcmi_get_device_share_enable(int card_id, int device_id, int *enable_flag)
{
    struct board_device device;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (enable_flag == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    *enable_flag = (int)device.share_enable;
    return DCMI_OK;
}

EXPORT int dcmi_set_device_share_enable(int card_id, int device_id, int enable_flag)
{
    struct board_device device;
    uint32_t flag = (uint32_t)enable_flag;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (enable_flag != 0 && enable_flag != 1) {
        return DCMI_INVALID_PARAMETER;
    }
    if (device.process_count > 0) {
        return DCMI_BUSY;
    }
    const struct board *board = board_lock();
    const struct slot *slot = cards_find(card_id, device_id);
    const uint32_t *field = slot != NULL ? &board->devices[slot->index].share_enable : NULL;
    board_unlock();
    return field == NULL ? DCMI_INVALID_DEVICE_ID : board_write(field, &flag, sizeof flag);
}

EXPORT int dcmi_get_multi_die_policy(int *policy)
{
    struct board_facts facts;
    int code = obey(__func__, -1);
    if (code != DCMI_OK || (code = read_facts(&facts)) != DCMI_OK) {
        return code;
    }
    if (facts.multi_die_policy == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    if (policy == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    *policy = (int)facts.multi_die_policy;
    return DCMI_OK;
}

EXPORT int dcmi_set_multi_die_policy(int policy)
{
    struct board_facts facts;
    uint32_t value = (uint32_t)policy;
    int code = obey(__func__, -1);
    if (code != DCMI_OK || (code = read_facts(&facts)) != DCMI_OK) {
        return code;
    }
    if (facts.multi_die_policy == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    if (policy != 0 && policy != 1) {
        return DCMI_INVALID_PARAMETER;
    }
    const struct board *board = board_lock();
    board_unlock();
    return board_write(&board->facts.multi_die_policy, &value, sizeof value);
}
