// Replaces processes that share one port (REUSE_PORT), while clients open a connection for each
// request. `node replacement.ts 0|1` sets `tcp_migrate_req` and prints the results as JSON.
// reuse-port.test.ts runs it in its own network namespace, to which that setting applies.
import { readFileSync, writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { connect } from 'node:net';
import { stablePort } from '../support/daemon.ts';
import { createDatabase } from '../support/postgres.ts';
import { type Program, start } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { request } from './http.ts';
import { TIMES } from './results.ts';
import { usersIn } from './users.ts';

const SYSCTL = '/proc/sys/net/ipv4/tcp_migrate_req';
const CLIENTS = 32;
/** The probability that the kernel gives all of them to one process is 2^-63. */
const QUEUED = 64;

/** The clients' results. */
export interface Seen {
  /** Processes replaced with SIGTERM, and requests acknowledged meanwhile. */
  readonly replaced: number;
  readonly acknowledged: number;
  /** Connections that ended without a response. */
  readonly failed: number;
  /** Responses other than 201. */
  readonly refused: number;
  /** Acknowledged users that are not in the database, and failed requests whose user is. */
  readonly lost: number;
  readonly doneAlthoughFailed: number;
  /** Requests of 64 without a response when one of two processes was killed first. */
  readonly failedByKill: number;
}

if (import.meta.main) {
  writeFileSync(SYSCTL, String(process.argv[2]));
  if (readFileSync(SYSCTL, 'utf8').trim() !== process.argv[2])
    throw new Error(`${SYSCTL} is fixed`);
  await using postgres = await Server.create();
  const DATABASE_URL = await createDatabase(postgres.url);
  const PORT = String(await stablePort());
  const replica = () => start({ DATABASE_URL, PORT, REUSE_PORT: 'true' });
  const replicas = await Promise.all([replica(), replica()]);
  try {
    const load = await replaceAll(replicas, replica);
    const failedByKill = await killOne(replicas);
    const emails = new Set((await usersIn(DATABASE_URL)).map(({ email }) => email));
    const seen: Seen = {
      replaced: load.replaced,
      acknowledged: load.acknowledged.length,
      failed: load.failed.length,
      refused: load.refused,
      lost: load.acknowledged.filter((email) => !emails.has(email)).length,
      doneAlthoughFailed: load.failed.filter((email) => emails.has(email)).length,
      failedByKill,
    };
    process.stdout.write(`${JSON.stringify(seen)}\n`);
  } finally {
    await Promise.all(replicas.map((program) => program[Symbol.asyncDispose]()));
  }
}

/** Replaces the processes one at a time, each as soon as the previous one listens. */
async function replaceAll(replicas: Program[], replica: () => Promise<Program>) {
  const load = { acknowledged: [] as string[], failed: [] as string[], refused: 0, replaced: 0 };
  const { url } = replicas[0]!;
  const agent = new Agent({ keepAlive: false });
  let isDone = false;
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    for (let i = 0; !isDone; i++) {
      const email = `${client}-${i}@example.com`;
      try {
        const { status } = await request(agent, `${url}/users`, 'POST', { name: 'N', email });
        if (status === 201) load.acknowledged.push(email);
        else load.refused++;
      } catch {
        load.failed.push(email);
      }
    }
  });
  for (let i = 0; i < 2 * TIMES.network; i++) {
    const { code } = await replicas[i % 2]!.stop();
    if (code !== 0) throw new Error(`a stop ended with ${code}`);
    replicas[i % 2] = await replica();
    load.replaced++;
  }
  isDone = true;
  await Promise.all(clients);
  return load;
}

/**
 * Freezes both processes, so the kernel queues connections. Then kills one and resumes the other.
 * @returns the number of connections without a response
 */
async function killOne([first, second]: readonly Program[]): Promise<number> {
  if (first === undefined || second === undefined) return Number.NaN;
  for (const { process } of [first, second]) process.kill('SIGSTOP');
  const { hostname, port } = new URL(first.url);
  const responses = Array.from({ length: QUEUED }, async () => {
    const socket = connect(Number(port), hostname);
    let text = '';
    socket.setEncoding('latin1').on('data', (part: string) => {
      text += part;
    });
    socket.once('error', () => {});
    socket.write('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    await Promise.race([new Promise((resolve) => socket.once('connect', resolve)), closed]);
    return { closed: closed.then(() => text.startsWith('HTTP/1.1 200 ')) };
  });
  const queued = await Promise.all(responses);
  first.process.kill('SIGKILL');
  await first.exited;
  second.process.kill('SIGCONT');
  const results = await Promise.all(queued.map(({ closed }) => closed));
  return results.filter((hasResponded) => !hasResponded).length;
}
