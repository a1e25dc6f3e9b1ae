/* The cards that dcmi_init saw: a snapshot of this process, as in the vendor's library. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "board.h"

static struct snapshot snapshot;

struct snapshot *cards(void)
{
    return &snapshot;
}

static bool node_exists(const struct board *board, unsigned physical_id)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/davinci%u", board_dev_folder(board), physical_id);
    return access(path, F_OK) == 0;
}

/* Whether the kernel still counts the chip: it may be gone and keep its number. */
static bool is_counted(const struct board_device *device)
{
    return device->presence != GONE || device->keeps_number != 0;
}

static bool dies_go_together(const struct board *board)
{
    return board->facts.multi_die_policy == 0;
}

static bool card_is_counted(const struct board *board, uint32_t card_id)
{
    for (uint32_t i = 0; i < board->facts.device_count; i++) {
        if (board->devices[i].card_id == card_id && !is_counted(&board->devices[i])) {
            return false;
        }
    }
    return true;
}

/* Under the union policy a missing die takes its whole card out of the list. */
static bool is_listed(const struct board *board, const struct board_device *device)
{
    return is_counted(device) && node_exists(board, device->physical_id) &&
           (!dies_go_together(board) || card_is_counted(board, device->card_id));
}

bool cards_is_vnpu(int card_id)
{
    for (int i = 0; i < snapshot.count; i++) {
        if (snapshot.slots[i].card_id == card_id && snapshot.slots[i].vnpu != 0) {
            return true;
        }
    }
    return false;
}

int cards_chips(const struct board *board, int card_id)
{
    if (cards_is_vnpu(card_id)) {
        return 1;
    }
    int chips = 0;
    for (uint32_t i = 0; i < board->facts.device_count; i++) {
        chips += (int)board->devices[i].card_id == card_id;
    }
    return chips;
}

bool cards_has_mcu(int card_id, int device_id)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return false;
    }
    bool hit = snapshot.ready && board->facts.has_mcu != 0 && !cards_is_vnpu(card_id) &&
               device_id > 0 && device_id == cards_chips(board, card_id);
    board_unlock();
    return hit;
}

static int by_physical_id(const void *left, const void *right)
{
    return ((const struct slot *)left)->physical_id - ((const struct slot *)right)->physical_id;
}

/* Where dies go together a card is lost with its first failed die, otherwise with its last chip. */
static bool card_is_lost(int card_id, bool with_first)
{
    int chips = 0, failed = 0;
    for (int i = 0; i < snapshot.count; i++) {
        chips += snapshot.slots[i].card_id == card_id;
        failed += snapshot.slots[i].card_id == card_id && snapshot.slots[i].failed;
    }
    return with_first ? failed > 0 : failed == chips;
}

/* The vNPUs that this container was given. One is a card by itself, of the number of its node: so
 * two partitions of a chip have two names. */
static void add_vnpus(const struct board *board, uint32_t index)
{
    const struct board_device *device = &board->devices[index];
    for (uint32_t i = 0; i < device->vnpu_count && snapshot.count < BOARD_DEVICES; i++) {
        uint32_t id = device->vnpus[i].id;
        if (device->presence == PRESENT && node_exists(board, id)) {
            snapshot.slots[snapshot.count++] = (struct slot){
                .index = (int)index,
                .card_id = (int)id,
                .physical_id = (int)id,
                .vnpu = id,
            };
        }
    }
}

int cards_refresh(const struct board *board)
{
    bool with_first = dies_go_together(board);
    snapshot.count = 0;
    for (uint32_t i = 0; i < board->facts.device_count; i++) {
        const struct board_device *device = &board->devices[i];
        add_vnpus(board, i);
        if (is_listed(board, device) && snapshot.count < BOARD_DEVICES) {
            snapshot.slots[snapshot.count++] = (struct slot){
                .index = (int)i,
                .card_id = (int)device->card_id,
                .device_id = (int)device->device_id,
                .physical_id = (int)device->physical_id,
                .failed = device->presence == SILENT || device->presence == GONE,
            };
        }
    }
    qsort(snapshot.slots, (size_t)snapshot.count, sizeof snapshot.slots[0], by_physical_id);
    for (int i = 0; i < snapshot.count; i++) {
        snapshot.slots[i].lost = card_is_lost(snapshot.slots[i].card_id, with_first);
    }
    snapshot.ready = snapshot.count > 0;
    return snapshot.ready ? DCMI_OK : DCMI_INNER_ERR;
}

static const struct slot *find(int card_id, int device_id, bool any_device)
{
    for (int i = 0; snapshot.ready && i < snapshot.count; i++) {
        const struct slot *slot = &snapshot.slots[i];
        if (slot->card_id == card_id && (any_device || slot->device_id == device_id)) {
            return slot->lost ? NULL : slot;
        }
    }
    return NULL;
}

const struct slot *cards_find(int card_id, int device_id)
{
    return find(card_id, device_id, false);
}

const struct slot *cards_first(int card_id)
{
    return find(card_id, 0, true);
}
