/* vendor.c - the table of vendors. */
#include "closure/vendor.h"
#include <stddef.h>
#include <string.h>

#define VENDOR_LIST "cpu, nvidia, amd, hip, apple"
static const Vendor vendors[] = {
    {"cpu", ".c"}, {"nvidia", ".cu"}, {"amd", ".hip"}, {"hip", ".hip"}, {"apple", ".metal"},
};

const Vendor *vendor_find(const char *name)
{
    for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
        if (!strcmp(vendors[i].name, name))
            return &vendors[i];
    return NULL;
}

const char *vendor_names(void)
{
    return VENDOR_LIST;
}
