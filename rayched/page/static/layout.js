// Where the heat map has which node: zones as blocks, side by side while they fit, a cell a node. Pure.

const GAP = 16;
const TITLE = 22;
const HISTOGRAM = 36;
const BLOCK_WIDTH_MIN = 150;
export const HEAD = TITLE + HISTOGRAM + 6;

const SIZES = [[100, 30], [600, 22], [2_500, 16], [8_000, 14], [30_000, 7]];
const SIZE_MIN = 3;

export function cellSize(nodes) {
  return SIZES.find(([most]) => nodes <= most)?.[1] ?? SIZE_MIN;
}

export class HeatLayout {
  // `rowsByZone`: rows of each zone in the order in which they are shown; `width`: pixels.
  constructor(rowsByZone, width, size = cellSize(rowsByZone.reduce((sum, rows) => sum + rows.length, 0))) {
    this.size = size;
    this.width = width;
    this.blocks = [];
    this.place = new Map();
    const beside = Math.max(1, Math.min(rowsByZone.length, Math.floor((width + GAP) / (BLOCK_WIDTH_MIN + GAP))));
    const room = Math.floor((width - GAP * (beside - 1)) / beside);
    const across = Math.max(1, Math.floor(room / size));
    let top = 0;
    for (let first = 0; first < rowsByZone.length; first += beside) {
      let height = 0;
      rowsByZone.slice(first, first + beside).forEach((rows, number) => {
        const block = { zone: first + number, x: number * (room + GAP), y: top, width: room, across, rows };
        rows.forEach((row, index) => this.place.set(row, [block, index]));
        this.blocks.push(block);
        height = Math.max(height, HEAD + Math.ceil(rows.length / across) * size);
      });
      top += height + GAP;
    }
    this.height = Math.max(0, top - GAP);
  }

  // The upper left corner of a node's cell.
  cell(row) {
    const found = this.place.get(row);
    if (!found) return null;
    const [block, index] = found;
    const { size } = this;
    return { x: block.x + (index % block.across) * size, y: block.y + HEAD + Math.floor(index / block.across) * size, size };
  }

  // The node at a point; undefined: none.
  rowAt(x, y) {
    for (const block of this.blocks) {
      const column = Math.floor((x - block.x) / this.size);
      const line = Math.floor((y - block.y - HEAD) / this.size);
      if (column >= 0 && column < block.across && line >= 0) {
        const row = block.rows[line * block.across + column];
        if (row !== undefined) return row;
      }
    }
    return undefined;
  }
}
