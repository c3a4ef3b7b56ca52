/* Parts of rows. Both walk the groups of a row; where parts and groups are multiples of 8 elements, 16 bytes at a time.
 *   split   each of `groups` equal parts of x: its first `first` elements to ya, the rest to yb
 *   concat  each of `groups` parts of y: wa / groups elements of a, then wb / groups of b
 *   x, y    [rows][width], ya, a [rows][wa], yb, b [rows][wb], wa + wb = width   bf16 row-major
 *   grid    (rows, ceil(width, 8 * THREADS))  block (THREADS): 8 elements a thread
 *   bytes   rows*width*4 */
#include "load.cuh"
#include "overlap.cuh"

/* One element of a whole row, or eight: where it lies in the row's parts. */
struct Place {
    bool second;
    size_t at;
};

__device__ __forceinline__ Place place(int row, int c, int part, int first, int groups)
{
    const int group = c / part, i = c % part, rest = part - first;
    if (i < first)
        return {false, (size_t)row * (size_t)(groups * first) + (size_t)(group * first + i)};
    return {true, (size_t)row * (size_t)(groups * rest) + (size_t)(group * rest + i - first)};
}

/* Calls copy(place, offset in the whole tensor, vector?) for what this thread moves. */
template <class F> __device__ __forceinline__ void each_place(int rows, int part, int first, int groups, F copy)
{
    const int width = part * groups, c = ((int)blockIdx.y * THREADS + (int)threadIdx.x) * VEC, row = (int)blockIdx.x;
    if (row >= rows || c >= width)
        return;
    const size_t at = (size_t)row * (size_t)width + (size_t)c;
    if (part % VEC == 0 && first % VEC == 0) {
        copy(place(row, c, part, first, groups), at, true);
        return;
    }
    for (int i = 0; i < VEC && c + i < width; i++)
        copy(place(row, c + i, part, first, groups), at + (size_t)i, false);
}

__device__ __forceinline__ void copy_one(bf16 *to, const bf16 *from, bool vector)
{
    if (vector)
        *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
    else
        *to = *from;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    split_tile(bf16 *ya, bf16 *yb, const bf16 *x, int rows, int width, int groups, int first)
{
    await_predecessors();
    each_place(rows, width / groups, first, groups,
               [=](Place p, size_t at, bool v) { copy_one((p.second ? yb : ya) + p.at, x + at, v); });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    concat_tile(bf16 *y, const bf16 *a, const bf16 *b, int rows, int wa, int wb, int groups)
{
    await_predecessors();
    each_place(rows, (wa + wb) / groups, wa / groups, groups,
               [=](Place p, size_t at, bool v) { copy_one(y + at, (p.second ? b : a) + p.at, v); });
}
