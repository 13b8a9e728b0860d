// Measures the heap of parsed forms, in a separate process with --expose-gc. Reads an array of
// forms as JSON on stdin. Prints as JSON the bytes that the results retain together, and the bytes
// that parsing allocates, including garbage.
import { json } from 'node:stream/consumers';
import { getHeapStatistics } from 'node:v8';
import { parseForm } from '../../src/http/form.ts';

const forms = (await json(process.stdin)) as string[];
const results: unknown[] = new Array(forms.length).fill(undefined);

parseForm('a[b][0][]=1&a[b][0][]=2'); // Compiles the parser.
// Takes the lowest of several rounds, because V8 can allocate memory to optimize the parser.
let retained = Number.POSITIVE_INFINITY;
let allocated = Number.POSITIVE_INFINITY;
for (let round = 0; round < 4; round++) {
  results.fill(undefined);
  const before = measure();
  for (const [i, form] of forms.entries()) {
    try {
      results[i] = parseForm(form);
    } catch (err) {
      results[i] = (err as Error).message;
    }
  }
  const total = getHeapStatistics().total_allocated_bytes;
  allocated = Math.min(allocated, total - before.allocated);
  retained = Math.min(retained, measure().used - before.used);
}
const refusals = results.filter((result) => typeof result === 'string');
process.stdout.write(JSON.stringify({ retained, allocated, refusals }));

function measure() {
  for (let i = 0; i < 3; i++) globalThis.gc?.();
  const { used_heap_size: used, total_allocated_bytes: allocated } = getHeapStatistics();
  return { used, allocated };
}
