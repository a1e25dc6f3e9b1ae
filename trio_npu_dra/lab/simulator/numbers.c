/* Converts between card, logic and physical ids. */
#include "board.h"

EXPORT int dcmi_get_device_logic_id(int *device_logic_id, int card_id, int device_id)
{
    struct slot slot;
    struct board_device device;
    if (device_logic_id == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    if (code == DCMI_NOT_SUPPORT) {
        return DCMI_NOT_READY; /* the only call that returns this before dcmi_init */
    }
    if (code != DCMI_OK) {
        return code;
    }
    if (board_lock() == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct slot *found = cards_find(card_id, device_id);
    *device_logic_id = found != NULL ? (int)(found - cards()->slots) : -1;
    board_unlock();
    return *device_logic_id < 0 ? DCMI_UNLISTED : DCMI_OK;
}

/* Finds a chip by its logic id, or by its physical id when logic_id is NONE; also a chip whose card
 * is lost, because its numbers stay in the library. */
static int by_number(const char *function, unsigned logic_id, unsigned physical_id,
                     struct slot *slot, unsigned *position)
{
    int code = obey(function, logic_id == NONE ? (int)physical_id : -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (board_lock() == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct snapshot *seen = cards();
    code = seen->ready ? DCMI_DEVICE_NOT_EXIST : DCMI_NOT_SUPPORT;
    for (int i = 0; seen->ready && i < seen->count; i++) {
        bool hit = logic_id == NONE ? seen->slots[i].physical_id == (int)physical_id
                                    : i == (int)logic_id;
        if (hit) {
            *slot = seen->slots[i];
            *position = (unsigned)i;
            code = DCMI_OK;
        }
    }
    board_unlock();
    return code;
}

EXPORT int dcmi_get_device_phyid_from_logicid(unsigned int logicid, unsigned int *phyid)
{
    struct slot slot;
    unsigned position;
    if (phyid == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    int code = by_number(__func__, logicid, 0, &slot, &position);
    if (code == DCMI_OK) {
        *phyid = (unsigned)slot.physical_id;
    }
    return code;
}
