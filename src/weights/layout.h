/* layout.h - the device layouts of weights: how a row-major stored tensor is laid out for kernels.
 * A layout is named by the family that reads it (FAMILIES.toml `layout`). All CPU classes share one layout for each
 * format.
 *
 *   row     [n][row bytes]   as stored
 *   f32     [n] f32          any float vector, widened exactly (norms, biases)
 *   n16     16 output rows interleaved, so that one vector register holds the same k, or 4 k's, of 16 rows; n is padded to
 *           16 with zeros. Tile t holds rows 16t..16t + 15 for all k:
 *
 *   f32 f16 bf16   [k][16] elements
 *
 * Block formats, for each 32 k's of a tile. Quants come in planes of 64-byte vectors; group g has k = 4g..4g + 3 of the 32,
 * and byte 4r + j of a vector belongs to row r, k = 4g + j:
 *
 *   i8  b[8][64]   vector g: group g
 *   u4  q[4][64]   vector g: low nibbles group g, high nibbles group g + 4 (16 k's on)
 *   u2  p[2][64]   vector v: bits 2c, 2c + 1 are group 4v + c
 *   u1  h[64]      bit g is group g
 *
 * so that a shift and a mask give a group, and what has scales for 16 k's finds them in groups 0..3 and 4..7.
 *
 *   q8_0     f16 d[16] | b                   544 bytes
 *   q4_0     f16 d[16] | q                   288
 *   q4_1     f16 d[16], m[16] | q            320
 *   q5_0     f16 d[16] | h | q               352
 *   q5_1     f16 d[16], m[16] | h | q        384
 *   iq4_nl   f16 d[16] | q                   288      codes, as stored
 *   mxfp4    u8 e[16] | q                    272      codes, as stored
 *
 * Super-blocks of 256 k's: a head, then 8 cells of 32 k's. Scales that files pack in 6 bits have a byte here, less their
 * offset (s - 32 is stored as i8), which is what the bytes in brackets are for (as stored -> here, for 16 rows).
 *
 *   q2_k     f16 d[16], dmin[16] | 8 x { u8 sm[2][16]       | p     }    1344   (s low nibble, m high; of 16 k's)
 *   q3_k     f16 d[16]           | 8 x { i8 s[2][16]        | h | p }    1824   (1760 -> 1824)
 *   q4_k     f16 d[16], dmin[16] | 8 x { u8 s[16], u8 m[16] | q     }    2368   (2304 -> 2368)
 *   q5_k     f16 d[16], dmin[16] | 8 x { u8 s[16], u8 m[16] | h | q }    2880   (2816 -> 2880)
 *   q6_k     f16 d[16]           | 8 x { i8 s[2][16]        | p | q }    3360
 *   iq4_xs   f16 d[16]           | 8 x { i8 s[16]           | q     }    2208   (2176 -> 2208)
 *
 * Formats whose rows have a part beside their codes (dtype.h), for each span of k's of a tile, the last perhaps short:
 *
 *   fp8/128  f32 d[16]           | u8 [k][16]
 *   nf4/S    f32 d[16]           | pairs [k / 2][16]      byte r: row r, low nibble k, high nibble k + 1
 *   w4p/S    f32 d[16], i16 z[16] | pairs                 and in front of all spans, once: u16 p[k]
 *   w4/S     f32 d[16], i16 z[16] | q for each 32 k's
 *   w8/S     f32 d[16], i16 z[16] | b for each 32 k's
 *   nvfp4    for each 16 k's: u8 s[16] | pairs [8][16]    and in front of all: f32 g[16]
 *
 *   frag    16 output rows in the order in which mma.m16n8k16 and wgmma take their A operand from registers (PTX ISA, "Matrix
 *           Fragments"); n is padded to 16 and k to whole groups with bytes of 0, which meet no x but 0. Tile t holds rows
 *           16t..16t + 15 for all k, so a run of groups is one contiguous copy. Of each 16 k's, lane 4g + t of a warp has
 *           k 2t, 2t + 1, 2t + 8, 2t + 9 of rows g and g + 8. A fragment F is 512 bytes, 16 for each lane, words w0..w3:
 *             32 bits   8 k's: w0, w1 = row g, 2t and 2t + 1; w2, w3 = row g + 8
 *             16 bits   16 k's: w0 = row g, 2t and 2t + 1; w1 = row g + 8, the same; w2, w3 = 2t + 8 and 2t + 9
 *             8 bits    32 k's: w0 = the four k's of row g; w1 = of row g + 8; w2, w3 = of the next 16 k's
 *             4 bits    64 k's: w0 = the eight k's of row g in 32 k's; w1 = of row g + 8; w2, w3 = of the next 32. The word's
 *                       low half has 2t, 2t + 8, 2t + 16, 2t + 24 from its lowest bits on, the high half their odd neighbours
 *           Planes of 64 k's with fewer bits, where pair j of a row's 64 is k 8j + 2t and its odd neighbour:
 *             2 bits    p: 8 bytes a lane, a word each for rows g and g + 8: pair j at bits 2j and 2j + 16
 *             1 bit     h: 4 bytes a lane: pair j at bits j and j + 16, of row g + 8 at j + 8 and j + 24
 *           Codes of 3, 5 and 6 bits have their lowest bits in the widest plane.
 *
 *   f32        for each 32 k's: F[4]                                         2048 bytes
 *   f16 bf16   for each 32 k's: F[2]                                         1024
 *   fp8/128    for each 128 k's: f32 d[16] | F[4]                            2112
 *   nvfp4      f32 g[16], then for each 64 k's: u8 s[16][4] | F              576
 *   mxfp4      for each 64 k's: u8 e[16][2] | F                              544
 *   q8_0       for each 64 k's: f16 d[16][2] | F[2]                          1088
 *   q4_0       for each 64 k's: f16 d[16][2] | F                             576      and iq4_nl, codes as stored
 *   q4_1       for each 64 k's: f16 d[16][2], m[16][2] | F                   640
 *   q5_0       for each 64 k's: f16 d[16][2] | h | F                         704
 *   q5_1       for each 64 k's: f16 d[16][2], m[16][2] | h | F               768
 *   nf4/64     for each 64 k's: f32 d[16] | F                                576
 *   nf4/32     for each 64 k's: f32 d[16][2] | F                             640
 *   w4/128     for each 128 k's: f32 d[16], i16 z[16] | F[2]                 1120
 *   w4/64      for each 64 k's: f32 d[16], i16 z[16] | F                     608
 *   w4/32      for each 64 k's: f32 d[16][2], i16 z[16][2] | F               704
 *   w8/128     for each 128 k's: f32 d[16], i16 z[16] | F[4]                 2144
 *   w4p/S      as w4/S, in front of each group u16 p[] of its k's            1376, 736, 832
 *   q2_k       for each 256 k's: f16 {d, dmin}[16] | u8 sm[16][16] | p[4]                 1344
 *   q3_k       for each 256 k's: f16 d[16] | i8 s[16][16] | h[4] | p[4]                   1824
 *   q4_k       for each 256 k's: f16 {d, dmin}[16] | u8 s[16][8], m[16][8] | F[4]         2368
 *   q5_k       for each 256 k's: f16 {d, dmin}[16] | u8 s[16][8], m[16][8] | h[4] | F[4]  2880
 *   q6_k       for each 256 k's: f16 d[16] | i8 s[16][16] | p[4] | F[4]                   3360
 *   iq4_xs     for each 256 k's: f16 d[16] | i8 s[16][8] | F[4]                           2208     codes as stored
 *
 * Transforms are pure: bytes in, bytes out. */
#ifndef METRALE_WEIGHTS_LAYOUT_H
#define METRALE_WEIGHTS_LAYOUT_H
#include "core/dtype.h"
#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum { LAYOUT_ROW, LAYOUT_F32, LAYOUT_N16, LAYOUT_FRAG, LAYOUT_COUNT } WeightLayout;

const char *layout_name(WeightLayout l);
bool layout_parse(const char *name, WeightLayout *out);
/* Can this stored format be laid out so? */
bool layout_takes(WeightLayout l, DType stored);
/* The format that a kernel sees: stored, or f32 under LAYOUT_F32. */
DType layout_dtype(WeightLayout l, DType stored);
/* Device bytes of an {n, k} tensor (n = 1 for vectors); false on overflow or when k is no multiple of the block. */
bool layout_bytes(WeightLayout l, DType stored, uint64_t n, uint64_t k, uint64_t *bytes);
/* How many source rows one independent piece takes (1 for row and f32, 16 for n16 and frag). */
uint32_t layout_rows(WeightLayout l);
/* Lays out rows [0, rows) of a source piece, rows <= layout_rows(l); src is row-major stored rows, dst one piece.
 * Missing rows are zero. */
void layout_piece(WeightLayout l, DType stored, uint64_t k, uint32_t rows, const void *src, void *dst);
#endif
