// A stand-in for kubectl with a cluster, for the commands of docs/operations.md. The real kubectl
// (KUBECTL) parses the arguments and the objects where it can do so without a cluster. Applied
// objects, as JSON, and other calls go to CALLS, one line each.
import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';

const { KUBECTL = '', CALLS = '' } = process.env;
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
    const [action, , ...rest] = args;
    record({ asked: [action, ...rest].join(' ') });
    break;
  }
  default:
    throw new Error(`kubectl ${command}: not known here`);
}
