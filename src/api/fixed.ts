// Handlers that need neither a body nor the store.
import { json, text } from '../http/reply.ts';
import type { RouteHandler } from '../route.ts';

export const greet: RouteHandler = () => text(200, 'Hello! This is the Notes and Users API.\n'); // 3.1

export const readNote: RouteHandler = (_context, { note }) => json(note); // 3.5

export const greetCaller: RouteHandler = (_context, { credential }) =>
  text(200, `Welcome, ${credential.name}.\n`); // 3.9

export const describeApi: RouteHandler = ({ headers }, { openapi }) => openapi.reply(headers); // 8.1, 8.3

export const showDocs: RouteHandler = ({ headers }, { docs }) => docs.reply(headers); // 8.2, 8.3
