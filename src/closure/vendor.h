/* vendor.h - the vendors that HARDWARE.toml may name, and which sources each one's compiler reads.
 *
 * This is the tree's vocabulary. Whether a vendor's compiler can be driven here is the compute room's matter. */
#ifndef METRALE_CLOSURE_VENDOR_H
#define METRALE_CLOSURE_VENDOR_H

typedef struct Vendor {
    const char *name;
    const char *source_ext; /* ".c" */
} Vendor;

/* NULL when unknown. */
const Vendor *vendor_find(const char *name);
/* "cpu, nvidia, ..." for messages. */
const char *vendor_names(void);
#endif
