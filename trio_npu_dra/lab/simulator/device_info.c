/* dcmi_get_device_info: one call for many structs. */
#include <string.h>

#include "board.h"
#include "vnpu.h"

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
    if (main_cmd == MAIN_SIO && sub_cmd == SUB_SIO_STATUS && facts.multi_die_policy != NONE) {
        return give(buf, size, &(struct dcmi_sio_status){0}, sizeof(struct dcmi_sio_status));
    }
    if (main_cmd == MAIN_VDEV_MNG) {
        return vnpu_query(&facts, &device, sub_cmd, buf, size);
    }
    return DCMI_NOT_SUPPORT;
}
