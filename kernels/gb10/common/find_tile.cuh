/* find_tile.cuh - a step's rows as tiles of neighbouring rows of one sequence. */
#ifndef METRALE_FIND_TILE_CUH
#define METRALE_FIND_TILE_CUH

/* Tile `index` of all: its sequence and rows; false behind the last one. seq_start [seqs + 1]. */
__device__ __forceinline__ bool find_tile(const int *seq_start, int seqs, int rows_of_tile, int index, int &seq,
                                          int &first, int &last)
{
    for (seq = 0; seq < seqs; seq++) {
        const int begin = seq_start[seq], end = seq_start[seq + 1],
                  tiles = (end - begin + rows_of_tile - 1) / rows_of_tile;
        if (index < tiles) {
            first = begin + index * rows_of_tile;
            last = min(first + rows_of_tile, end);
            return true;
        }
        index -= tiles;
    }
    return false;
}
#endif
