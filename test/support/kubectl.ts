// A stand-in for kubectl with a cluster, for the commands of docs/operations.md. The real kubectl
// (KUBECTL) parses the arguments and the objects where it can do so without a cluster. Applied
// objects, as JSON, and other calls go to CALLS, one line each.
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';

const { KUBECTL = '', CALLS = '', MANIFEST = '' } = process.env;
const [command = '', ...args] = process.argv.slice(2);

const kubectl = (all: readonly string[], input = '') =>
  execFileSync(KUBECTL, all, { input, encoding: 'utf8', stdio: ['pipe', 'pipe', 'inherit'] });
const record = (call: unknown) => appendFileSync(CALLS, `${JSON.stringify(call)}\n`);

/** Objects as JSON, read by kubectl without a cluster. */
function parse(yaml: string): { kind: string; items?: unknown[] } {
  const flags = ['--local', '--dry-run=client', '-o', 'json', '-f', '-', 'stand-in=1'];
  return JSON.parse(kubectl(['label', ...flags], yaml));
}

switch (command) {
  case 'create': {
    if (!args.includes('--dry-run=client')) throw new Error('create: only with --dry-run=client');
    process.stdout.write(kubectl([command, ...args]));
    break;
  }
  case 'apply': {
    const [flag, file, ...rest] = args;
    if (flag !== '-f' || rest.length > 0) throw new Error(`apply ${args}: not known here`);
    const yaml = readFileSync(file === '-' ? 0 : file!, 'utf8');
    for (const document of yaml.split(/^---\n/m)) record({ applied: parse(document) });
    break;
  }
  case 'rollout': {
    const [action, target, ...rest] = args;
    // The manifest is parsed and has the requested object.
    const [kind, name] = target!.split('/');
    const manifest = readFileSync(MANIFEST, 'utf8')
      .split(/^---\n/m)
      .map(parse) as {
      kind: string;
      metadata: { name: string };
    }[];
    if (!manifest.some((one) => one.kind.toLowerCase() === kind && one.metadata.name === name)) {
      throw new Error(`${target}: not in ${MANIFEST}`);
    }
    // kubectl reports an unknown flag before the missing cluster.
    const { stderr } = spawnSync(KUBECTL, [command, ...args, '--server=http://127.0.0.1:9'], {
      encoding: 'utf8',
    });
    if (!stderr.includes('refused')) throw new Error(stderr);
    record({ asked: [action, ...rest].join(' ') });
    break;
  }
  default:
    throw new Error(`kubectl ${command}: not known here`);
}
