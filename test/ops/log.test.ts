// The log: formats, levels, and writing to a sink.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { type Format, Log } from '../../src/ops/log.ts';
import { usedBytes } from '../support/garbage.ts';

const REQUEST = {
  ...{ requestId: 'r-1', traceId: undefined, method: 'GET', route: '/users/{id}' },
  ...{ status: 200, bytes: 61, client: '192.0.2.1' },
};
const NOW = Date.UTC(2026, 0, 2, 3, 4, 5, 6);

async function written(write: (log: Log) => void, format: Format) {
  let all = '';
  const sink = async (text: string) => {
    all += text;
    await turn();
    return '';
  };
  const log = new Log('debug', format, sink, () => NOW);
  write(log);
  await log.flush();
  return all;
}

/** Returns a log whose sink accepts each text only when the test allows it. */
function slow() {
  const texts: string[] = [];
  const waiting: (() => void)[] = [];
  const log = new Log('info', 'json', (text) => {
    texts.push(text);
    return new Promise((resolve) => waiting.push(() => resolve('')));
  });
  const take = () => {
    waiting.shift()!();
    return turn();
  };
  return { log, texts, take };
}

const parsed = (text: string) => (text.match(/[^\n]+/g) ?? []).map((line) => JSON.parse(line));
const messages = (text: string) => parsed(text).map(({ message }) => message);

describe('6.7 6.8 lines', () => {
  const cause = 'a "quoted"\n{"level":"info"}\r\u0000\u001b[31m\u2028😀\ud83d';
  const TIME = '{"time":"2026-01-02T03:04:05.006Z","level":';
  const rest = '"status":200,"ms":1.235,"bytes":61,"client":"192.0.2.1"}\n';
  for (const [why, write, json, text] of [
    [
      'info',
      (log) => log.info('listening', { url: 'u', none: undefined, n: 1 }),
      `${TIME}"info","message":"listening","url":"u","n":1}\n`,
      '03:04:05.006 listening url=u n=1\n',
    ],
    [
      'error',
      (log) => log.error('failed', { cause: 'c' }),
      `${TIME}"error","message":"failed","cause":"c"}\n`,
      '03:04:05.006 error: failed cause=c\n',
    ],
    [
      'a request, without other members of an exchange',
      (log) => log.request({ ...REQUEST, fault: 'secret' } as typeof REQUEST, 1.23456),
      `${TIME}"info","message":"request","requestId":"r-1","method":"GET","route":"/users/{id}",${rest}`,
      '03:04:05.006 200 GET /users/{id} 1.2 ms 61 B 192.0.2.1 r-1\n',
    ],
    [
      'a request with a trace, without a route',
      (log) => log.request({ ...REQUEST, traceId: 'abc', route: '' }, 1.23456),
      `${TIME}"info","message":"request","requestId":"r-1","traceId":"abc","method":"GET","route":"",${rest}`,
      '03:04:05.006 200 GET  1.2 ms 61 B 192.0.2.1 r-1\n',
    ],
  ] as [string, (log: Log) => void, string, string][]) {
    test(`6.8 ${why}`, async () => {
      assert.equal(await written(write, 'json'), json);
      assert.equal(await written(write, 'text'), text);
    });
  }

  test('6.7 quotes, line ends and control characters stay within their line of JSON', async () => {
    const [line] = parsed(await written((log) => log.error('failed', { cause }), 'json'));
    assert.equal(line.cause, cause);
  });
});

describe('writing to the sink', () => {
  test('lines of one turn are written together, with one write in flight, and a flush waits for all', async () => {
    const { log, texts, take } = slow();
    log.info('1');
    log.info('2');
    let isFlushed = false;
    log.flush().then(() => {
      isFlushed = true;
    });
    assert.deepEqual(texts, []);
    await turn();
    log.info('3');
    await turn();
    log.info('4');
    await turn();
    const first = ['1', '2'];
    assert.deepEqual(texts.map(messages), [first]);
    await take();
    assert.deepEqual(texts.map(messages), [first, ['3', '4']]);
    assert.ok(!isFlushed);
    await take();
    assert.ok(isFlushed);
  });

  test('6.10 a blocked sink costs at most 4 MiB, and dropped lines are counted', async () => {
    const { log, texts, take } = slow();
    log.info('first');
    await turn();
    const fill = 'x'.repeat(1000);
    for (let i = 0; i < 10_000; i++) log.info(String(i), { fill });
    await take();
    assert.ok(texts[1]!.length > 4 * 2 ** 20 && texts[1]!.length < 4 * 2 ** 20 + 2000);
    const kept = messages(texts[1]!);
    assert.deepEqual(kept.slice(0, 3), ['0', '1', '2']);
    await take();
    const [report, ...others] = parsed(texts.slice(2).join(''));
    assert.deepEqual(others, []);
    assert.deepEqual([report.level, report.message], ['error', 'log lines dropped']);
    assert.equal(report.count, log.droppedCount);
    assert.equal(kept.length + report.count, 10_000);
  });

  test('6.10 lines that the sink does not write are counted', async () => {
    const log = new Log('info', 'json', async (text) => text);
    for (const message of ['1', '2']) log.info(message);
    await log.flush();
    assert.equal(log.droppedCount, 2);
  });

  test('6.10 a line that waits keeps nothing of a request besides its text', async () => {
    const { log } = slow();
    log.info('first');
    await turn();
    const before = usedBytes();
    for (let i = 0; i < 1_000; i++) {
      const header = Buffer.alloc(16_000, `${i}-`.padStart(64, '0')).toString('latin1');
      log.request({ ...REQUEST, traceId: header.slice(0, 32), client: header.slice(32, 64) }, 1);
    }
    assert.ok(usedBytes() - before < 2 ** 23); // The headers have 16 MB.
  });
});
