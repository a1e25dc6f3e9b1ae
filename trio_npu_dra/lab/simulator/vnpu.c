/* dcmi_create_vdevice and its kin: how chips are split, and the queries about it. */
#include <stdio.h>
#include <string.h>

#include "vnpu.h"

/* --- queries ----------------------------------------------------------------------------------- */

static void put_share(const struct board_facts *facts, const struct vnpu_share *share,
                      struct dcmi_computing_resource *computing, struct dcmi_media_resource *media)
{
    computing->aic = (float)share->aic;
    computing->aiv = UNKNOWN_RESOURCE;
    media->jpegd = media->jpege = media->vpc = UNKNOWN_RESOURCE;
    media->vdec = media->pngd = media->venc = UNKNOWN_RESOURCE;
    if (facts->vnpu_details != 0) {
        computing->memory_size = share->memory;
        computing->device_aicpu = (unsigned short)share->aicpu;
        media->jpegd = share->jpegd;
        media->jpege = share->jpege;
        media->vpc = share->vpc;
        media->vdec = share->vdec;
        media->pngd = share->pngd;
        media->venc = share->venc;
    }
}

static int give_total(const struct board_facts *facts, const struct board_device *device,
                      struct dcmi_soc_total_resource *total)
{
    struct vnpu_share all = vnpu_total(facts, device);
    total->vdev_num = device->vnpu_count;
    for (uint32_t i = 0; i < device->vnpu_count; i++) {
        total->vdev_id[i] = device->vnpus[i].id;
    }
    put_share(facts, &all, &total->computing, &total->media);
    return DCMI_OK;
}

static int give_free(const struct board_facts *facts, const struct board_device *device,
                     struct dcmi_soc_free_resource *rest)
{
    struct vnpu_share share = vnpu_free(facts, device);
    put_share(facts, &share, &rest->computing, &rest->media);
    return DCMI_OK;
}

static int find(const struct board_device *device, uint32_t id)
{
    for (uint32_t i = 0; i < device->vnpu_count; i++) {
        if (device->vnpus[i].id == id) {
            return (int)i;
        }
    }
    return -1;
}

static int give_vnpu(const struct board_facts *facts, const struct board_device *device,
                     uint32_t id, struct dcmi_vdev_query_stru *query)
{
    int index = find(device, id);
    if (index < 0) {
        return DCMI_DEVICE_NOT_EXIST;
    }
    const struct board_vnpu *vnpu = &device->vnpus[index];
    struct vnpu_share share = {0};
    (void)vnpu_share_of(facts, device, vnpu->template_name, &share);
    query->vdev_id = id;
    put_text(query->query_info.name, sizeof query->query_info.name, vnpu->template_name);
    query->query_info.status = 0;
    query->query_info.is_container_used = vnpu->in_use;
    put_share(facts, &share, &query->query_info.computing, &query->query_info.media);
    return DCMI_OK;
}

/* What is not known is 0xFF over the caller's whole buffer, and -1 for a share. */
int vnpu_query(const struct board_facts *facts, const struct board_device *device,
               unsigned sub_cmd, void *buf, unsigned *size)
{
    static const size_t lengths[] = {
        [SUB_VDEV_RESOURCE] = sizeof(struct dcmi_vdev_query_stru),
        [SUB_TOTAL_RESOURCE] = sizeof(struct dcmi_soc_total_resource),
        [SUB_FREE_RESOURCE] = sizeof(struct dcmi_soc_free_resource),
    };
    if (sub_cmd >= sizeof lengths / sizeof lengths[0]) {
        return DCMI_NOT_SUPPORT; /* the activity of a vNPU too, as on 910B */
    }
    if (*size < lengths[sub_cmd]) {
        return DCMI_INVALID_PARAMETER;
    }
    uint32_t id = *(uint32_t *)buf;
    memset(buf, 0xFF, *size);
    if (sub_cmd == SUB_VDEV_RESOURCE) {
        return give_vnpu(facts, device, id, buf);
    }
    return sub_cmd == SUB_TOTAL_RESOURCE ? give_total(facts, device, buf)
                                         : give_free(facts, device, buf);
}

/* --- what a container with a partition sees -------------------------------------------------------- */

int vnpu_narrow(const struct board_facts *facts, struct board_device *device, uint32_t id)
{
    struct vnpu_share share = {0};
    int index = find(device, id);
    if (index < 0 || !vnpu_share_of(facts, device, device->vnpus[index].template_name, &share)) {
        return DCMI_DEVICE_NOT_EXIST;
    }
    device->vnpus[0] = device->vnpus[index];
    device->vnpu_count = 0;
    device->physical_id = id;
    device->aicore_count = share.aic;
    device->process_count = 0; /* those of the other partitions are not seen, and whose is which is */
    if (device->hbm_size != 0) {
        device->hbm_size = share.usable_memory;
        device->hbm_used = 0;
    } else {
        device->ddr_size = device->ddr_available = share.usable_memory;
    }
    return DCMI_OK;
}

void vnpu_add_to_name(const struct board_device *device, char *chip_name, size_t size)
{
    if (device->physical_id >= FIRST_VNPU) {
        size_t length = strnlen(chip_name, size);
        put_text(chip_name + length, size - length, device->vnpus[0].template_name);
    }
}

/* --- making and removing ----------------------------------------------------------------------- */

struct order {
    char template_name[32];
    uint32_t id; /* in: the wanted one, or VDEV_AUTO; out: that of the new vNPU */
};

static bool exceeds(const struct vnpu_share *partition, const struct vnpu_share *rest)
{
    return partition->aic > rest->aic || partition->aicpu > rest->aicpu || partition->memory > rest->memory ||
           partition->vpc > rest->vpc || partition->venc > rest->venc || partition->vdec > rest->vdec ||
           partition->jpegd > rest->jpegd || partition->jpege > rest->jpege || partition->pngd > rest->pngd;
}

/* Room as if the chip were split already: the first vNPU switches SR-IOV on, which adds AI CPUs. */
static bool has_room(const struct board_facts *facts, const struct board_device *device,
                     const struct vnpu_share *partition)
{
    struct board_device split = *device;
    if (split.vnpu_count == 0) {
        split.vnpu_count = 1;
        split.vnpus[0] = (struct board_vnpu){0};
    }
    struct vnpu_share rest = vnpu_free(facts, &split);
    return !exceeds(partition, &rest);
}

/* The id of a new vNPU; 0 if the wanted one, or all, are taken. */
static uint32_t choose_id(const struct board_facts *facts, const struct board_device *device,
                          uint32_t wanted)
{
    uint32_t first = FIRST_VNPU + VNPUS_OF_A_CHIP * device->physical_id;
    for (uint32_t id = first; id < first + vnpu_limit(facts); id++) {
        if ((wanted == VDEV_AUTO || wanted == id) && find(device, id) < 0) {
            return id;
        }
    }
    return 0;
}

static int create(const struct board *board, struct board_device *device, void *argument)
{
    struct order *order = argument;
    struct vnpu_share share = {0};
    const struct board_facts *facts = &board->facts;
    if (vnpu_limit(facts) == 0 || facts->multi_die_policy == 0) {
        return DCMI_NOT_SUPPORT; /* the second: the dies of an A3 card go together */
    }
    if (device->vnpu_count == 0 && device->process_count > 0) {
        return DCMI_BUSY; /* somebody has the whole chip */
    }
    if (!vnpu_share_of(facts, device, order->template_name, &share) ||
        !has_room(facts, device, &share)) {
        return DCMI_INVALID_PARAMETER;
    }
    uint32_t id = choose_id(facts, device, order->id);
    if (id == 0) {
        return DCMI_INVALID_PARAMETER;
    }
    /* One of a virtual machine has no node. */
    int code = facts->vnpu_mode == VNPU_FOR_CONTAINERS
                   ? vnpu_make_node(board, device->physical_id, id)
                   : DCMI_OK;
    if (code == DCMI_OK) {
        struct board_vnpu *vnpu = &device->vnpus[device->vnpu_count++];
        *vnpu = (struct board_vnpu){.id = id};
        put_text(vnpu->template_name, sizeof vnpu->template_name, order->template_name);
        order->id = id;
    }
    return code;
}

static void drop(const struct board *board, struct board_device *device, uint32_t index)
{
    vnpu_remove_node(board, device->physical_id, device->vnpus[index].id);
    device->vnpu_count--;
    memmove(&device->vnpus[index], &device->vnpus[index + 1],
            (device->vnpu_count - index) * sizeof device->vnpus[0]);
}

static int destroy(const struct board *board, struct board_device *device, void *argument)
{
    uint32_t id = *(uint32_t *)argument;
    int index = find(device, id);
    if (id != VDEV_ALL && index < 0) {
        return DCMI_DEVICE_NOT_EXIST;
    }
    for (uint32_t i = 0; i < device->vnpu_count; i++) {
        if ((id == VDEV_ALL || device->vnpus[i].id == id) && device->vnpus[i].in_use != 0) {
            return DCMI_INVALID_PARAMETER;
        }
    }
    while (id == VDEV_ALL && device->vnpu_count > 0) {
        drop(board, device, 0);
    }
    if (id != VDEV_ALL) {
        drop(board, device, (uint32_t)index);
    }
    return DCMI_OK;
}

EXPORT int dcmi_create_vdevice(int card_id, int device_id, struct dcmi_create_vdev_res_stru *vdev,
                               struct dcmi_create_vdev_out *out)
{
    struct slot slot;
    struct board_device device;
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    if (code != DCMI_OK || (code = check_presence(__func__, &device)) != DCMI_OK) {
        return code;
    }
    if (vdev == NULL || out == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (slot.vnpu != 0) {
        return DCMI_OPER_NOT_PERMITTED; /* a container with a partition */
    }
    struct order order = {.id = vdev->vdev_id};
    memcpy(order.template_name, vdev->template_name, sizeof order.template_name - 1);
    code = board_change_device(slot.index, create, &order);
    if (code == DCMI_OK) {
        memset(out, 0xFF, sizeof *out); /* where it is on PCI is not told */
        out->vdev_id = order.id;
    }
    return code;
}

EXPORT int dcmi_set_destroy_vdevice(int card_id, int device_id, unsigned int vdevid)
{
    struct slot slot;
    struct board_device device;
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    if (code != DCMI_OK || (code = check_presence(__func__, &device)) != DCMI_OK) {
        return code;
    }
    uint32_t id = vdevid;
    return slot.vnpu != 0 ? DCMI_OPER_NOT_PERMITTED
                          : board_change_device(slot.index, destroy, &id);
}

/* --- how the node is set ----------------------------------------------------------------------- */

static int read_setting(const char *function, size_t offset, unsigned *value)
{
    struct board_facts facts;
    int code = obey(function, -1);
    if (code != DCMI_OK || (code = read_facts(&facts)) != DCMI_OK) {
        return code;
    }
    if (vnpu_limit(&facts) == 0) {
        return DCMI_NOT_SUPPORT;
    }
    if (value == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    memcpy(value, (const char *)&facts + offset, sizeof *value);
    return DCMI_OK;
}

EXPORT int dcmi_get_vdevice_mode(int *mode)
{
    return read_setting(__func__, offsetof(struct board_facts, vnpu_mode), (unsigned *)mode);
}
