/* vNPUs: the partitions that a chip is split into, by templates. */
#ifndef SIMULATOR_VNPU_H
#define SIMULATOR_VNPU_H

#include "board.h"

enum { FIRST_VNPU = 100, VNPUS_OF_A_CHIP = 16 }; /* ids: 16 for each chip, from 100 on */

/* --- vnpu_templates.c: what chips can be split into -------------------------------------------- */

/* Some of what a chip has. Memory in MB. */
struct vnpu_share {
    uint32_t aic;
    uint32_t aicpu;
    uint64_t memory;
    uint64_t usable_memory; /* what a container can use of it */
    float vpc, venc, vdec, jpegd, jpege, pngd;
};

/* How many vNPUs such a chip can have; 0 where it cannot be split. */
uint32_t vnpu_limit(const struct board_facts *facts);

/* What a vNPU of this template gets of such a chip; false where its board has no such template. */
bool vnpu_share_of(const struct board_facts *facts, const struct board_device *device,
                   const char *template_name, struct vnpu_share *share);

/* All of the chip, and what its vNPUs leave of it. */
struct vnpu_share vnpu_total(const struct board_facts *facts, const struct board_device *device);
struct vnpu_share vnpu_free(const struct board_facts *facts, const struct board_device *device);

/* --- vnpu.c ------------------------------------------------------------------------------------ */

/* The queries of dcmi_get_device_info about vNPUs. */
int vnpu_query(const struct board_facts *facts, const struct board_device *device,
               unsigned sub_cmd, void *buf, unsigned *size);

/* Makes the copy of a chip show what a container sees that has this partition of it: its one vNPU is
 * the partition. An error if the partition is not there any more. */
int vnpu_narrow(const struct board_facts *facts, struct board_device *device, uint32_t id);

/* Adds the template to the name of a partition's chip; leaves that of a whole chip alone. */
void vnpu_add_to_name(const struct board_device *device, char *chip_name, size_t size);

/* --- vnpu_nodes.c: their device nodes ---------------------------------------------------------- */

int vnpu_make_node(const struct board *board, uint32_t physical_id, uint32_t id);
void vnpu_remove_node(const struct board *board, uint32_t physical_id, uint32_t id);

#endif
