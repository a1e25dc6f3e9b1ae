/* Which containers have a chip. All between board_lock and board_unlock. */
#ifndef SIMULATOR_OCCUPANCY_H
#define SIMULATOR_OCCUPANCY_H

#include "board.h"

/* Whether a process of a container has the chip at this index of board.devices. */
bool occupancy_any(int index);

/* Gives the chips that this process sees to its container, or none of them: -8020. */
int occupancy_take(const struct board *board, const struct snapshot *seen);

#endif
