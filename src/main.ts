// The program: arguments, environment, signals and exit status.
import { once } from 'node:events';
import { fstatSync, write } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { isatty } from 'node:tty';
import { promisify } from 'node:util';
import { now, setTimeout, sleep } from './clock.ts';
import { type Config, InvalidConfig, readAdminAddress, readConfig } from './config.ts';
import { Log, type Sink } from './ops/log.ts';
import { type Service, startService } from './service.ts';
import { backup } from './store/sqlite-file.ts';
import { nodeProblem, VERSION } from './version.js';

const EXIT = { ok: 0, failed: 1, software: 70, config: 78 } as const; // 6.11, sysexits.h
const USAGE = 'usage: notes-users [--json | --backup FILE | --live | --ready | --help | --version]';

const HELP = `${USAGE}

  --json     log JSON lines on a terminal too
  --backup   copy the configured SQLite database to the new FILE, also while the service runs
  --live     exit with 0 if the running service responds, else with 1
  --ready    exit with 0 if the running service takes requests, else with 1
  --help     print this text
  --version  print the version

Settings come from environment variables; the README lists them.
`;

const PROBE_TIMEOUT_MS = 2_500; // 6.5
const FLUSH_TIMEOUT_MS = 500;
// A terminal signals the whole process group and npm relays the signal, so one Ctrl-C arrives twice.
const REPEAT_MS = 1_000; // 6.2
const LINE_FEED = 0x0a;
const writeBytes = promisify(write);

// Errors of a connection whose peer is gone. The rest of the process is not affected.
const PEER_GONE = ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH'];

// Their readers can exit at any time (6.10, 6.11).
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
main().catch((err: Error) => {
  print(err.message);
  process.exitCode = err instanceof InvalidConfig ? EXIT.config : EXIT.failed; // 1.6, 6.4, 6.5, 6.11
  // An unread line on stderr would keep the process alive.
  setTimeout(() => process.exit(), FLUSH_TIMEOUT_MS).unref(); // 6.12
});

async function main(): Promise<void> {
  if (nodeProblem !== undefined) throw new Error(nodeProblem); // 9.7
  const argument = process.argv.slice(2).join(' ');
  switch (argument) {
    case '--live':
    case '--ready':
      return probe(argument.slice(2));
    case '--help':
      return void process.stdout.write(HELP); // 6.11
    case '--version':
      return void process.stdout.write(`notes-users ${VERSION}\n`); // 6.11
    case '':
    case '--json':
      return serve(argument === '--json');
  }
  const [option, target, ...rest] = process.argv.slice(2);
  if (option === '--backup' && target && rest.length === 0) return copyTo(target); // 6.19
  throw new Error(USAGE); // 6.11
}

async function copyTo(target: string): Promise<void> {
  const { DATABASE_URL } = readConfig(process.env);
  if (DATABASE_URL.engine !== 'sqlite' || DATABASE_URL.path === ':memory:') {
    throw new Error(
      '--backup copies the file of a SQLite database; sqlite::memory: has none, and for Postgres use pg_dump',
    );
  }
  return backup(DATABASE_URL.path, target);
}

/** Requests `/live` or `/ready` from the admin listener of a running service (6.5). @throws unless it returns 200 */
async function probe(path: string): Promise<void> {
  const { host, port } = readAdminAddress(process.env);
  const ask = async () => {
    const signal = AbortSignal.timeout(PROBE_TIMEOUT_MS);
    const req = get({ host, port, path: `/${path}`, agent: false, signal });
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    return { status: res.statusCode, body: await text(res) };
  };
  const { status, body } = await ask().catch(({ message, code, cause }: NodeJS.ErrnoException) => {
    // The cause of an AbortError names the timeout; an AggregateError has no message of its own.
    const reason = (cause as Error | undefined)?.message ?? (message || code);
    throw new Error(`no response from the admin listener at ${host}:${port}: ${reason}`);
  });
  if (status !== 200) throw new Error(body.trim());
}

async function serve(isJson: boolean): Promise<void> {
  const config = readConfig(process.env); // 1.1
  const log = openLog(config, isJson);
  const exit = async (status: number) => {
    await Promise.race([log.flush(), sleep(FLUSH_TIMEOUT_MS)]); // 6.12
    process.exit(status);
  };

  let service: Service | undefined;
  let faultStatus: number | undefined;
  let signalMs: number | undefined;
  const stop = async () => {
    // A service that has not started has nothing to finish.
    const isInTime = service === undefined || (await service.stop().catch(() => false)); // 6.2
    exit(faultStatus ?? (isInTime ? EXIT.ok : EXIT.failed));
  };
  const onSignal = () => {
    signalMs ??= now();
    if (now() - signalMs < REPEAT_MS) stop();
    else exit(EXIT.failed); // 6.2
  };
  const hasTerminal = () => [0, 1, 2].some(isatty); // false once the terminal is closed
  const isInteractive = hasTerminal();
  const onHangup = () => {
    if (isInteractive && !hasTerminal()) onSignal();
    else service?.reloadTls(); // 6.9
  };
  const onFault = (err: unknown) => {
    log.error('fault outside a request', { cause: (err as Error)?.stack ?? String(err) }); // 6.16
    if (isSurvivable(err)) return;
    faultStatus = EXIT.software;
    stop();
  };
  process.on('uncaughtException', onFault);
  // By node's default these are uncaught exceptions, unless an option or a listener of a preloaded module takes them.
  process.on('unhandledRejection', onFault);
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('SIGHUP', onHangup);

  service = await startService(config, log, (err) => {
    log.error('cannot serve', { cause: err.message });
    print(err.message);
    exit(EXIT.failed);
  });
  const { user, password } = service.credential;
  if (config.AUTH_PASSWORD === undefined) {
    print(`AUTH_PASSWORD is not set; generated for user ${user}: ${password}`);
  }
  if (config.SIGNING_SECRET === undefined) {
    print('SIGNING_SECRET is not set; all tokens become invalid when this process ends');
  }
}

/** Opens the log on stdout. Its reader can't block the process (6.10). */
function openLog({ LOG_LEVEL }: Config, isJson: boolean): Log {
  for (const stream of [process.stdout, process.stderr]) {
    // Otherwise node blocks while a terminal is paused, for example after Ctrl-S.
    type Terminal = { _handle?: { setBlocking?: (isBlocking: boolean) => void } };
    (stream as Terminal)._handle?.setBlocking?.(false);
  }
  const toStream: Sink = (lines) =>
    new Promise((resolve) =>
      process.stdout.write(lines, 'utf8', (err) => resolve(err ? lines : '')),
    );
  // pm2's cluster mode replaces `write`, and the descriptor is that of its own log.
  const isReplaced = Object.hasOwn(process.stdout, 'write');
  const sink = fstatSync(process.stdout.fd).isFile() && !isReplaced ? fileSink() : toStream;
  return new Log(LOG_LEVEL, process.stdout.isTTY && !isJson ? 'text' : 'json', sink); // 6.7
}

/** Writes to a file on stdout asynchronously (6.6, 6.10); node's own stream would block. */
function fileSink(): Sink {
  let isTorn = false; // A full disk took only part of a line, so the next write begins a new one.
  return async (lines) => {
    const bytes = Buffer.from(isTorn ? `\n${lines}` : lines);
    const failed = { bytesWritten: 0 };
    const { bytesWritten } = await writeBytes(process.stdout.fd, bytes).catch(() => failed);
    if (bytesWritten > 0) isTorn = bytes[bytesWritten - 1] !== LINE_FEED;
    return bytesWritten > 0 ? bytes.toString('utf8', bytesWritten) : lines;
  };
}

/** True if the process can continue after this fault (6.16). After others, our own state is unknown. */
function isSurvivable(err: unknown): boolean {
  const { code = '', stack } = (err ?? {}) as NodeJS.ErrnoException;
  if (PEER_GONE.includes(code)) return true;
  // The Postgres driver can throw outside any call; the pool replaces its connection. Only the frame that
  // threw counts, because the driver also calls our callbacks.
  const [frame = ''] = /^ +at (?!.*\bnode:).*/m.exec(String(stack)) ?? [];
  return frame.includes('/node_modules/postgres/');
}

function print(message: string): void {
  process.stderr.write(`${message}\n`);
}
