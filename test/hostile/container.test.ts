// The image under attack, with the memory limit of `docker run --memory 128m`. HOSTILE=full runs all
// attacks on plain connections that need neither users nor a certain store.
import { existsSync } from 'node:fs';
import { after, describe, test } from 'node:test';
import { Container, engine, IMAGE, inspect } from '../image/engine.ts';
import { freePort } from '../support/postgres.ts';
import { PASSWORD } from '../support/program.ts';
import { ATTACKS, type Attack } from './attacks.ts';
import { MemoryGroup } from './cgroup.ts';
import { IS_FULL, reported, table } from './results.ts';
import { Process } from './service.ts';
import { besiege } from './siege.ts';

const LIMIT_BYTES = 128 * 2 ** 20;

/** One that uses memory for requests, one for responses, one for connections. */
const SHORT = [
  'forms of 99 kB that nest indices of 999',
  '1,200 clients that never read /openapi.json',
  '10,050 connections that send half a head',
];

const CHOSEN = ATTACKS.filter((attack) => (IS_FULL ? fits(attack) : SHORT.includes(attack.name)));

/** The engine reads the log, and the store of the container is empty. */
function fits({ transport, store, hasUsers, freezesStore, leavesLogUnread }: Attack): boolean {
  const needsOther = hasUsers || freezesStore || leavesLogUnread || store !== undefined;
  return transport !== 'tls' && !needsOther;
}

after(() => {
  process.stdout.write(`\n${table(reported())}\n`);
});

describe('docker run --memory 128m', { skip: IMAGE === '' && 'no image was built' }, () => {
  for (const attack of CHOSEN) {
    test(`survives ${attack.name}`, { timeout: 240_000 }, async (t) => {
      const [port, adminPort] = [await freePort(), await freePort()];
      await using container = new Container();
      // The host's network, so clients keep their addresses.
      await container.run(
        ...['--network=host', '--memory-swap=128m'],
        ...['-e', `PORT=${port}`, '-e', `ADMIN_PORT=${adminPort}`],
        ...['-e', `AUTH_PASSWORD=${PASSWORD}`],
        ...Object.entries(attack.settings ?? {}).flatMap(([key, value]) => [
          '-e',
          `${key}=${value}`,
        ]),
      );
      await container.responses(`http://127.0.0.1:${port}`);
      const pid = Number(await inspect('container', container.name, '{{.State.Pid}}'));
      const service = new Contained(pid, container.name, port, adminPort);
      await besiege(t, service, attack, {
        ...{ form: 'docker run', transport: 'plain', store: 'sqlite' },
        ...{ limitBytes: LIMIT_BYTES, spareDescriptors: 0 },
      });
    });
  }
});

/** The service's process in a container. */
class Contained extends Process {
  readonly ended: Promise<unknown>;

  constructor(pid: number, name: string, port: number, adminPort: number) {
    const [url, adminUrl] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${adminPort}`];
    super(pid, MemoryGroup.of(pid), url, adminUrl);
    this.ended = engine('wait', name);
  }

  get end(): string | undefined {
    return existsSync(`/proc/${this.pid}`) ? undefined : 'the container ended';
  }
}
