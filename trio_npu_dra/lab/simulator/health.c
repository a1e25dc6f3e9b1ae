/* Health and error codes. */
#include <stdio.h>

#include "board.h"

static unsigned reported(const struct board_device *device)
{
    unsigned health = device->health;
    if (device->forced_health != NONE) {
        return device->forced_health;
    }
    for (uint32_t i = 0; i < device->fault_count; i++) {
        if (device->faults[i].severity > health) {
            health = device->faults[i].severity;
        }
    }
    return health;
}

EXPORT int dcmi_get_device_health(int card_id, int device_id, unsigned int *health)
{
    struct slot slot;
    struct board_device device;
    if (health == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    *health = (unsigned)HEALTH_UNKNOWN;
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    if (code != DCMI_OK || device.presence == GONE) {
        return code; /* a vanished chip is no error here: the call succeeds with "unknown" */
    }
    code = check_presence(__func__, &device);
    if (code == DCMI_OK) {
        *health = reported(&device);
    }
    return code;
}

EXPORT int dcmi_get_device_errorcode_v2(int card_id, int device_id, int *error_count,
                                        unsigned int *error_code_list, unsigned int list_len)
{
    struct board_device device;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        /* The vendor's call hides every other reason. */
        return code == DCMI_UNLISTED ? code : DCMI_INNER_ERR;
    }
    if (error_count == NULL || error_code_list == NULL || list_len < device.fault_count) {
        return DCMI_INVALID_PARAMETER;
    }
    for (uint32_t i = 0; i < device.fault_count; i++) {
        error_code_list[i] = device.faults[i].code;
    }
    *error_count = (int)device.fault_count;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_errorcode_string(int card_id, int device_id, unsigned int error_code,
                                            unsigned char *error_info, int buf_size)
{
    struct board_device device;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (error_info == NULL || buf_size < 48) {
        return DCMI_INVALID_PARAMETER;
    }
    snprintf((char *)error_info, (size_t)buf_size, "simulated fault 0x%08X", error_code);
    return DCMI_OK;
}

EXPORT int dcmi_get_device_boot_status(int card_id, int device_id, unsigned int *boot_status)
{
    struct slot slot;
    struct board_device device;
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (boot_status == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (device.presence == GONE) {
        return DCMI_DEVICE_NOT_EXIST;
    }
    *boot_status = device.presence == PRESENT ? BOOT_SERVICE_STARTED : BOOT_BIOS;
    return DCMI_OK;
}
