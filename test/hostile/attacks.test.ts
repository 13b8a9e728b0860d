// Hostile clients attack the service as it ships in a memory control group, next to honest clients.
// HOSTILE=full runs each attack at 128 and 256 MiB, plain and over TLS, on both stores.

import { after, test } from 'node:test';
import { certificate } from '../support/certificate.ts';
import { createDatabase } from '../support/postgres.ts';
import { newDatabase } from '../support/program.ts';
import { Server } from '../support/server.ts';
import { ATTACKS, type Attack } from './attacks.ts';
import { IS_FULL, reported, table } from './results.ts';
import { type Form, Service } from './service.ts';
import { besiege } from './siege.ts';
import { addUsers, LONG_NAME } from './users.ts';

const MIB = 2 ** 20;
const USERS = 20_000;
const POOL_SIZE = 4;

interface Case {
  readonly attack: Attack;
  readonly transport: 'plain' | 'tls';
  readonly store: 'sqlite' | 'postgres';
  readonly limitBytes: number;
  readonly form: Form;
}

/** Attacks that also run against `npm start`. */
const STARTED = [
  'forms of 99 kB that nest indices of 999',
  '10,050 connections that send half a head',
];

const CASES = [
  ...ATTACKS.flatMap((attack, i) => (IS_FULL ? everyCase(attack) : [oneCase(attack, i)])),
  ...ATTACKS.filter(({ name }) => STARTED.includes(name)).map((attack, i): Case => {
    return { ...oneCase(attack, i), form: 'npm start' };
  }),
];

const postgres = CASES.some(({ store }) => store === 'postgres')
  ? await Server.create('-c', 'fsync=off')
  : undefined;

after(async () => {
  process.stdout.write(`\n${table(reported())}\n`);
  await postgres?.[Symbol.asyncDispose]();
});

for (const { attack, transport, store, limitBytes, form } of CASES) {
  const place = `${form}, ${transport}, ${store}, ${limitBytes / MIB} MiB`;
  test(`survives ${attack.name} (${place})`, { timeout: 240_000 }, async (t) => {
    const url =
      store === 'postgres' ? await createDatabase(postgres!.url) : await newDatabase(store);
    await using service = await Service.start({
      limitBytes,
      form,
      isLogRead: !attack.leavesLogUnread,
      settings: {
        DATABASE_URL: url,
        ...(transport === 'tls' ? certificate() : {}),
        ...attack.settings,
      },
    });
    if (attack.hasUsers) await addUsers(url, USERS, LONG_NAME);
    if (attack.freezesStore) postgres!.suspend();
    try {
      const spareDescriptors = store === 'postgres' ? POOL_SIZE : 0;
      await besiege(t, service, attack, {
        ...{ form, transport, store, limitBytes, spareDescriptors },
      });
    } finally {
      if (attack.freezesStore) postgres!.resume();
    }
  });
}

/** At 128 MiB; attacks on users alternate between the stores. */
function oneCase(attack: Attack, i: number): Case {
  return {
    attack,
    transport: attack.transport ?? attack.shortTransport ?? 'plain',
    store: attack.store ?? (attack.hasUsers && i % 2 === 0 ? 'postgres' : 'sqlite'),
    limitBytes: 128 * MIB,
    form: 'image',
  };
}

function everyCase(attack: Attack): Case[] {
  const transports = attack.transport ? [attack.transport] : (['plain', 'tls'] as const);
  const users = attack.hasUsers ? (['sqlite', 'postgres'] as const) : (['sqlite'] as const);
  const stores = attack.store ? [attack.store] : users;
  return [128, 256].flatMap((mebibytes) =>
    transports.flatMap((transport) =>
      stores.map((store): Case => {
        return { attack, transport, store, limitBytes: mebibytes * MIB, form: 'image' };
      }),
    ),
  );
}
