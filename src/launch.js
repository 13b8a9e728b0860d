// Starts the program from its source. Plain JavaScript, because a node that is too old can't read main.ts.
import { nodeProblem } from './version.js';

if (nodeProblem === undefined) {
  await import('./main.ts');
} else {
  process.stderr.write(`${nodeProblem}\n`); // 9.7
  process.exitCode = 1;
}
