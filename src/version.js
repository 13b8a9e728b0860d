// The version of the service, and of the node that it needs. Plain JavaScript, which every node can read.

/** The version that --version, the metrics and openapi.json show. Same as in package.json. */
export const VERSION = '0.1.0';

const OLDEST_NODE = 24;
// Bun and Deno also report a version of node, but lack what src/server relies on.
const { node, bun, deno } = process.versions;
const other = bun ? `Bun ${bun}` : deno && `Deno ${deno}`;

/** Says what to do if this node is too old, or is none; otherwise undefined (9.7). */
export const nodeProblem =
  other || Number.parseInt(node, 10) < OLDEST_NODE
    ? `notes-users needs Node ${OLDEST_NODE} or newer, and this is ${other ?? `Node ${node}`}. Install one from https://nodejs.org.`
    : undefined;
