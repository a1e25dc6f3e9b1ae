/* What is asked before a card is reset; resets themselves are not simulated. */
#include "board.h"

/* Whether the chip can be reset from outside of the server's operating system: 1, it can. */
EXPORT int dcmi_get_device_outband_channel_state(int card_id, int device_id, int *state)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (state == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (facts.has_topology == 0) {
        return DCMI_NOT_SUPPORT; /* all but 910B, A3 and 950 */
    }
    *state = 1;
    return DCMI_OK;
}

/* The card that shares a network device with this one, and is reset with it: of an A3 the other one
 * of two (a guess); other boards have none. */
EXPORT int dcmi_get_netdev_brother_device(int card_id, int device_id, int *brother_card_id)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (brother_card_id == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (facts.multi_die_policy == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    *brother_card_id = card_id ^ 1;
    return DCMI_OK;
}
