// Cuts an ELF file after the last byte that the loader maps (System V ABI, chapters 4 and 5). The
// rest, a fifth of node's binary, has symbol tables and section names. Only debuggers and linkers
// read them; JavaScript stack traces do not.

/** Header fields of a 64-bit file that describe the removed part: first byte and length. */
export const SECTION_FIELDS = { offset: [40, 8], count: [60, 2], names: [62, 2] } as const;

const MAGIC = 0x7f454c46;
const CLASS_64 = 2;
const LITTLE_ENDIAN = 1;

/**
 * Returns the bytes up to the end of the last segment. Only the section fields of the header differ
 * from the file: they are zero.
 * @throws an Error if it is not a 64-bit little-endian ELF file
 */
export function loadedPart(elf: Buffer): Buffer {
  if (elf.readUInt32BE(0) !== MAGIC || elf[4] !== CLASS_64 || elf[5] !== LITTLE_ENDIAN) {
    throw new Error('not a 64-bit little-endian ELF file');
  }
  const table = Number(elf.readBigUInt64LE(32));
  const size = elf.readUInt16LE(54);
  const count = elf.readUInt16LE(56);
  let end = table + count * size;
  for (let header = table; header < table + count * size; header += size) {
    const start = Number(elf.readBigUInt64LE(header + 8));
    const length = Number(elf.readBigUInt64LE(header + 32));
    end = Math.max(end, start + length);
  }
  const part = Buffer.from(elf.subarray(0, end));
  for (const [start, length] of Object.values(SECTION_FIELDS)) part.fill(0, start, start + length);
  return part;
}
