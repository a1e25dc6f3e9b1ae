/* How chips are linked to each other and to CPUs; and the policies of sharing. */
#include <string.h>

#include "board.h"
#include "occupancy.h"

#define AFFINITY_BYTES 32 /* the library assumes this size for the caller's buffer */

EXPORT int dcmi_get_topo_info_by_device_id(int card_id1, int device_id1, int card_id2,
                                           int device_id2, int *topo_type)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id1, device_id1, topo_type, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (facts.has_topology == 0) {
        return DCMI_NOT_SUPPORT;
    }
    const struct board *board = board_lock();
    const struct slot *first = cards_find(card_id1, device_id1);
    const struct slot *second = cards_find(card_id2, device_id2);
    code = first != NULL && second != NULL ? DCMI_OK : DCMI_UNLISTED;
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
    if (strlen(device.cpu_list) >= AFFINITY_BYTES) {
        return DCMI_SECURE_FUN_FAIL;
    }
    strcpy(affinity_cpu, device.cpu_list);
    *length = (int)strlen(device.cpu_list);
    return DCMI_OK;
}

/* --- policies -------------------------------------------------------------------------------- */

EXPORT int dcmi_get_device_share_enable(int card_id, int device_id, int *enable_flag)
{
    struct board_device device;
    int code = open_to_answer(__func__, card_id, device_id, enable_flag, &device, NULL);
    if (code != DCMI_OK) {
        return code;
    }
    *enable_flag = (int)device.share_enable;
    return DCMI_OK;
}

struct share_flag {
    const uint32_t *field;
    bool busy;
};

/* The flags that one call sets: those of all dies of an A3 card, or of the one chip. */
static int share_flags(const struct board_facts *facts, int card_id, int device_id,
                       struct share_flag *flags)
{
    int count = 0;
    const struct board *board = board_lock();
    for (int i = 0; board != NULL && i < cards()->count; i++) {
        const struct slot *slot = &cards()->slots[i];
        const struct board_device *device = &board->devices[slot->index];
        bool is_meant = facts->multi_die_policy != NONE || slot->device_id == device_id;
        if (slot->card_id == card_id && is_meant) {
            bool busy = device->process_count > 0 || occupancy_any(slot->index);
            flags[count++] = (struct share_flag){&device->share_enable, busy};
        }
    }
    if (board != NULL) {
        board_unlock();
    }
    return count;
}

/* In order: when a die is in use, the dies before it stay set. */
EXPORT int dcmi_set_device_share_enable(int card_id, int device_id, int enable_flag)
{
    struct board_device device;
    struct board_facts facts;
    struct share_flag flags[BOARD_DEVICES];
    uint32_t value = (uint32_t)enable_flag;
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (enable_flag != 0 && enable_flag != 1) {
        return DCMI_INVALID_PARAMETER;
    }
    int count = share_flags(&facts, card_id, device_id, flags);
    for (int i = 0; code == DCMI_OK && i < count; i++) {
        code = flags[i].busy ? DCMI_BUSY : board_write(flags[i].field, &value, sizeof value);
    }
    return code;
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
