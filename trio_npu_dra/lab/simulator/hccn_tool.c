/* hccn_tool -i N -link -g: whether the link of a chip's RoCE port is up.
 *
 * The device plugin asks this tool, not DCMI, whether the network is up. It reads the state file
 * through a link beside itself, as the vendor's tool asks the driver and not libdcmi.so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "board.h"

static int usage(void)
{
    fputs("usage: hccn_tool -i <physical id> -link -g\n", stderr);
    return EXIT_FAILURE;
}

static bool find_device(unsigned long physical_id, struct board_device *device)
{
    const struct board *board = board_lock();
    bool found = false;
    if (board == NULL) {
        return false;
    }
    for (uint32_t i = 0; !found && i < board->facts.device_count; i++) {
        found = board->devices[i].physical_id == physical_id;
        if (found) {
            *device = board->devices[i];
        }
    }
    board_unlock();
    return found;
}

int main(int argc, char **argv)
{
    struct board_device device;
    if (argc != 5 || strcmp(argv[1], "-i") != 0 || strcmp(argv[3], "-link") != 0 ||
        strcmp(argv[4], "-g") != 0) {
        return usage();
    }
    if (!find_device(strtoul(argv[2], NULL, 10), &device) || device.presence != PRESENT ||
        device.link_up == NONE) {
        fprintf(stderr, "no RoCE port answers on device %s\n", argv[2]);
        return EXIT_FAILURE;
    }
    printf("link status: %s\n", device.link_up != 0 ? "UP" : "DOWN");
    return EXIT_SUCCESS;
}
