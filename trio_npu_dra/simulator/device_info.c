/* dcmi_get_device_info: one call for many structs. */
#include <string.h>

#include "board.h"

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

/* --- vNPU queries ------------------------------------------------------------------------------ */

enum { FIRST_VNPU = 100, VNPUS_OF_A_CHIP = 16 }; /* ids that the driver gives */

/* Unknown values are 0xFF over the caller's whole buffer, and -1 for a share. */
static int clear(void *buf, const unsigned int *size, size_t length)
{
    if (*size < length) {
        return DCMI_INVALID_PARAMETER;
    }
    memset(buf, 0xFF, *size);
    return DCMI_OK;
}

static void put_chip(const struct board_facts *facts, const struct board_device *device,
                     struct dcmi_computing_resource *computing, struct dcmi_media_resource *media)
{
    computing->aic = (float)device->aicore_count;
    computing->aiv = UNKNOWN_RESOURCE;
    media->jpegd = media->jpege = media->vpc = UNKNOWN_RESOURCE;
    media->vdec = media->pngd = media->venc = UNKNOWN_RESOURCE;
    if (facts->vnpu_details != 0) {
        computing->memory_size = device->hbm_size != 0 ? device->hbm_size : device->ddr_size;
        computing->device_aicpu = (unsigned short)facts->ai_cpus;
    }
}

static int give_total_resource(const struct board_facts *facts, const struct board_device *device,
                               void *buf, const unsigned int *size)
{
    struct dcmi_soc_total_resource *total = buf;
    int code = clear(buf, size, sizeof *total);
    if (code == DCMI_OK) {
        total->vdev_num = device->vnpu_count;
        for (unsigned int i = 0; i < device->vnpu_count && i < 32; i++) {
            total->vdev_id[i] = FIRST_VNPU + VNPUS_OF_A_CHIP * device->physical_id + i;
        }
        put_chip(facts, device, &total->computing, &total->media);
    }
    return code;
}

static int give_free_resource(const struct board_facts *facts, const struct board_device *device,
                              void *buf, const unsigned int *size)
{
    struct dcmi_soc_free_resource *rest = buf;
    int code = clear(buf, size, sizeof *rest);
    if (code == DCMI_OK) {
        put_chip(facts, device, &rest->computing, &rest->media);
    }
    return code;
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
        return give_total_resource(&facts, &device, buf, size);
    }
    if (main_cmd == MAIN_VDEV_MNG && sub_cmd == SUB_FREE_RESOURCE) {
        return give_free_resource(&facts, &device, buf, size);
    }
    return DCMI_NOT_SUPPORT;
}
