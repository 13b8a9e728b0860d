// The process of an attacker: runs one attack until it is killed. Meanwhile it reports its
// counts to its parent.
import { ATTACKS } from './attacks.ts';
import { Connections } from './connections.ts';

const REPORT_EVERY_MS = 100;

const connections = new Connections(JSON.parse(process.argv[2]!));
const attack = ATTACKS.find(({ name }) => name === connections.target.attack);
if (attack === undefined) throw new Error(`no attack is called ${connections.target.attack}`);
attack.run(connections);
setInterval(() => process.send?.(connections.counts), REPORT_EVERY_MS);
process.on('disconnect', () => process.exit());
