// Runs one attack until its parent ends, and reports how many connections it has opened: node run-attack.ts TARGET
import { Attacker, type Target } from './attacker.ts';
import { ATTACKS } from './attacks.ts';

const REPORT_EVERY_MS = 100;

const target: Target = JSON.parse(process.argv[2]!);
const attack = ATTACKS.find(({ name }) => name === target.attack)!;
const attacker = new Attacker(target, attack.addresses);
attack.run(attacker);
setInterval(() => process.send?.(attacker.opened), REPORT_EVERY_MS);
process.on('disconnect', () => process.exit());
