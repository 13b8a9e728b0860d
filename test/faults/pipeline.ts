// Clients on raw sockets, for what node's own client can't do: they pipeline requests, and queue
// connections in the kernel while the server is frozen.
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Program } from '../support/program.ts';

/** Requests that a pipelining client sends in one packet. */
const DEPTH = 10;

/**
 * Reads users in packets of requests until the server closes the connection. Resolves with the
 * number of accepted requests and of responses.
 */
export async function pipeline({ url }: Program) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).setEncoding('latin1');
  let text = '';
  let asked = 0;
  const responded = () => text.split('HTTP/1.1 200').length - 1;
  const send = () => {
    asked += DEPTH;
    socket.write('GET /users?limit=1 HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(DEPTH));
  };
  socket.on('error', () => {});
  socket.on('data', (part) => {
    text += part;
    if (responded() === asked && !/connection: close/i.test(text)) send();
  });
  socket.once('connect', send);
  await once(socket, 'close');
  // A last packet without any response was sent to a closed connection.
  const isTaken = responded() > asked - DEPTH;
  return { taken: isTaken ? asked : asked - DEPTH, responded: responded() };
}

/** Freezes the program and leaves connections with a request each in its kernel queue. */
export async function queue({ url, process }: Program, count: number) {
  const { hostname, port } = new URL(url);
  process.kill('SIGSTOP');
  const sockets = Array.from({ length: count }, () => connect(Number(port), hostname));
  const texts = sockets.map(() => '');
  const done = sockets.map(async (socket, i) => {
    socket.setEncoding('latin1').on('error', () => {});
    socket.on('data', (part) => {
      texts[i] += String(part);
    });
    await once(socket, 'close');
  });
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  for (const socket of sockets) socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  return {
    /** The first line of each response, once all connections have ended. */
    async statuses(): Promise<string[]> {
      await Promise.all(done);
      return texts.map((text) => text.slice(0, 'HTTP/1.1 200'.length));
    },
  };
}
