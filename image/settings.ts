// Compares the settings of an image with the Dockerfile. Settings matter as much as files: an image
// with the right files and NODE_OPTIONS=--require=… runs other code.
import { ENGINE, run } from './unpack.ts';

/** Setting that every builder adds to an image FROM scratch. */
const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Fields that describe the build, are empty, or can't run code, such as labels. */
const INERT = [
  'ArgsEscaped',
  'AttachStderr',
  'AttachStdin',
  'AttachStdout',
  'Domainname',
  'Hostname',
  'Image',
  'Labels',
  'OpenStdin',
  'StdinOnce',
  'Tty',
];

/** Settings by the engine's names, as JSON values. Empty settings are absent. */
export type Settings = Readonly<Record<string, unknown>>;

/** Returns the settings of an image as the engine reports them. */
export async function settingsOf(id: string): Promise<Settings> {
  const [image] = JSON.parse(await run(ENGINE, ['image', 'inspect', id]));
  // Podman reports the health check outside the settings.
  const { HealthCheck: check } = image;
  const {
    Healthcheck = check,
    Env,
    WorkingDir,
    ...config
  } = image.Config as Record<string, unknown>;
  const settings = {
    ...config,
    // BuildKit writes the default.
    WorkingDir: WorkingDir === '/' ? '' : WorkingDir,
    Env: ((Env ?? []) as string[]).filter((variable) => variable !== PATH).sort(),
    Healthcheck: (Healthcheck as { Test?: unknown } | undefined)?.Test,
  };
  return Object.fromEntries(
    Object.entries(settings).filter(([name, value]) => !INERT.includes(name) && !isEmpty(value)),
  );
}

/** Returns the settings of the last stage of a Dockerfile. */
export function settingsIn(dockerfile: string): Settings {
  const stage = dockerfile.slice(dockerfile.lastIndexOf('\nFROM ') + 1);
  const lines = stage.replace(/^#.*\n/gm, '').replace(/\\\n\s*/g, '');
  const argument = (instruction: string) =>
    new RegExp(`^${instruction}\\s+(.*)$`, 'm').exec(lines)?.[1] ?? '';
  const words = (instruction: string) => argument(instruction).split(/\s+/);
  const keys = (list: readonly string[]) => Object.fromEntries(list.map((key) => [key, {}]));
  const [, test = '[]'] = /\sCMD\s+(\[.*\])$/.exec(argument('HEALTHCHECK')) ?? [];
  return {
    Entrypoint: JSON.parse(argument('ENTRYPOINT')),
    Env: words('ENV').sort(),
    ExposedPorts: keys(words('EXPOSE').map((port) => `${port}/tcp`)),
    Healthcheck: ['CMD', ...JSON.parse(test)],
    StopSignal: argument('STOPSIGNAL'),
    User: argument('USER'),
    Volumes: keys(JSON.parse(argument('VOLUME'))),
  };
}

/** Returns one line per unexpected setting. */
export function settingsChanged(found: Settings, expected: Settings): readonly string[] {
  const names = [...new Set([...Object.keys(expected), ...Object.keys(found)])].sort();
  return names
    .filter((name) => JSON.stringify(found[name]) !== JSON.stringify(expected[name]))
    .map((name) => `${name}: changed to ${JSON.stringify(found[name]) ?? 'nothing'}`);
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === '' || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
