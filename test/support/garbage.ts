// Collects garbage in the process of the tests.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

/** Runs V8's collector twice: a collection that it had begun by itself keeps what has died since. */
export function collect(): void {
  gc();
  gc();
}

/** Returns the bytes of the heap and of buffers after a collection. */
export function usedBytes(): number {
  collect();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}
