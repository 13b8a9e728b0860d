// Runs the image: without settings, hardened. operations.test.ts stops and restarts it; test/package.test.ts runs its
// entry point without a container, and contract.test.ts the contract in one with 128 MB.
import assert from 'node:assert/strict';
import { userInfo } from 'node:os';
import { describe, test } from 'node:test';
import { newFolder } from '../support/program.ts';
import { until } from '../support/until.ts';
import { Container, engine, inspect, NO_IMAGE } from './engine.ts';

describe('the image: running', { skip: NO_IMAGE, timeout: 900_000 }, () => {
  test('its health check reports healthy, and unhealthy when it hangs', async () => {
    const flags = ['--health-interval=1s', '--health-timeout=1s', '--health-retries=1'];
    await using container = await Container.start(...flags);
    const health = () => inspect('container', container.name, '{{.State.Health.Status}}');
    await until(async () => (await health()) === 'healthy');
    await engine('kill', '-s', 'STOP', container.name);
    await until(async () => (await health()) === 'unhealthy');
  });

  test('a name is found although the first of two name servers does not respond', async () => {
    const servers = ['127.0.0.1', '127.0.0.2'];
    const flags = ['--sysctl=net.ipv4.ip_unprivileged_port_start=0'];
    await using container = await Container.start(...flags, ...servers.map((ip) => `--dns=${ip}`));
    // Both are here. The second one copies each query into its response: such a name does not exist.
    const script = `
      const [, other] = ${JSON.stringify(servers)}.map((ip) =>
        require('node:dgram').createSocket('udp4').bind({ port: 53, address: ip }),
      );
      other.on('message', (query, { port, address }) => {
        query[2] |= 0x80;
        query[3] = 3;
        other.send(query, port, address);
      });
      other.on('listening', () => {
        setTimeout(() => console.log('late'), 4000);
        require('node:dns').lookup('database.example', (err) => {
          console.log(err.code);
          process.exit();
        });
      });`;
    const found = await engine('exec', container.name, '/usr/local/bin/node', '-e', script);
    assert.equal(found, 'ENOTFOUND');
  });

  test('any uid with group 0 can store data', async () => {
    await using container = await Container.start('--user', '1234567:0');
    await container.responses();
    assert.equal((await fetch(`${await container.url()}/users`)).status, 200);
  });

  test('a root-owned bind mount prints one line with the chown to run', {
    skip: userInfo().uid !== 0 && 'needs root, to own the folder',
  }, async () => {
    await using container = await Container.start('-v', `${newFolder()}:/data`);
    assert.equal(await engine('wait', container.name), '1');
    assert.match((await container.lines()).join('\n'), /^.*chown 65532:65532 \/data.*$/);
  });
});
