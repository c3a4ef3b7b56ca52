/* iq4.h - what the codes of iq4_nl and iq4_xs stand for, times the scale (ggml's kvalues_iq4nl). */
#ifndef METRALE_IQ4_H
#define METRALE_IQ4_H
#include <stdint.h>

static const int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
#endif
