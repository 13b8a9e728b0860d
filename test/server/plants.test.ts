// Shows that the two models find defects: each row plants one in a copy of the service, and a model must fail.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

const ROOT = join(import.meta.dirname, '../..');
const EVENTS = '10000';
const SEED = '1'; // The same events each time.

interface Plant {
  readonly claim: string; // what the planted defect does
  readonly file: 'ledger' | 'connection';
  readonly text: string; // occurs once
  readonly replacement: string;
}

const PLANTS: readonly Plant[] = [
  {
    // In c75c470, 1,023 idle connections of 64 MiB locked everyone else out like this.
    claim: 'at the limit, a new connection is closed without a response',
    file: 'ledger',
    text: 'this.charge(holder, this.limits.connectionBytes);',
    replacement: `this.charge(holder, this.limits.connectionBytes);
    if (!this.#fits(1)) holder.close('room');`,
  },
  {
    claim: 'the time of our wait for a client counts for nothing',
    file: 'ledger',
    text: 'FRESH_MS + now - waitingSinceMs',
    replacement: 'FRESH_MS + 0 * waitingSinceMs',
  },
  {
    // The rule before the model had claims about requests: fresh connections of many networks closed slow ones.
    claim: 'a client that waits for us counts like one that has just connected',
    file: 'ledger',
    text: 'const WORKING_MS = FRESH_MS / 2;',
    replacement: 'const WORKING_MS = FRESH_MS;',
  },
  {
    claim: 'a client that waits for us is never closed while another can be',
    file: 'ledger',
    text: 'const WORKING_MS = FRESH_MS / 2;',
    replacement: 'const WORKING_MS = 0;',
  },
  {
    claim: 'a /48 is as many networks as it has /64s',
    file: 'ledger',
    text: 'Math.max(network.heldBytes, siteBytes, least)',
    replacement: 'Math.max(network.heldBytes, 0 * siteBytes, least)',
  },
  {
    claim: 'closing stops one connection too early',
    file: 'ledger',
    text: 'if (this.#fits(1 - SPARE)) return;',
    replacement: 'if (this.#fits(1)) return;',
  },
  {
    claim: 'a response leaves its request charged',
    file: 'connection',
    text: 'this.refund(exchange.heldBytes);',
    replacement: '',
  },
  {
    claim: 'the latest of the waiting requests is next',
    file: 'connection',
    text: 'this.#waiting.shift()',
    replacement: 'this.#waiting.pop()',
  },
  {
    claim: 'a refusal overtakes the responses before it',
    file: 'connection',
    text: 'if (this.#current === undefined) this.#linger();',
    replacement: 'this.#linger();',
  },
  {
    claim: 'a connection is counted twice when it closes',
    file: 'connection',
    text: "if (this.#state === 'closed') return;\n    this.enter('closed');",
    replacement: "this.enter('closed');",
  },
  {
    claim: 'lingering has no end',
    file: 'connection',
    text: "this.#state === 'lingering' && waitedMs > LINGER_MS",
    replacement: 'waitedMs < 0',
  },
  {
    claim: 'a body that is malformed gets no response',
    file: 'connection',
    text: 'this.#refuseBody(refusal); // The rest of a body is malformed or late.',
    replacement: '',
  },
];

const copy = mkdtempSync(join(tmpdir(), 'notes-users-plants-'));
after(() => rmSync(copy, { recursive: true }));
for (const folder of ['src', 'db', 'test/server']) {
  cpSync(join(ROOT, folder), join(copy, folder), { recursive: true });
}
symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
cpSync(join(ROOT, 'package.json'), join(copy, 'package.json'));

function isFound(file: Plant['file']): boolean {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const options = { cwd: copy, env: { ...env, EVENTS, FAST_CHECK_SEED: SEED } };
  return spawnSync(process.execPath, [`test/server/${file}.test.ts`], options).status !== 0;
}

describe('a planted defect is found', () => {
  test('but none without one', () => {
    assert.ok(!isFound('ledger'));
    assert.ok(!isFound('connection'));
  });
  for (const { claim, file, text, replacement } of PLANTS) {
    test(claim, () => {
      const path = join(copy, `src/server/${file}.ts`);
      const source = readFileSync(path, 'utf8');
      assert.equal(source.split(text).length, 2, 'the text occurs once');
      writeFileSync(path, source.replace(text, replacement));
      try {
        assert.ok(isFound(file));
      } finally {
        writeFileSync(path, source);
      }
    });
  }
});
