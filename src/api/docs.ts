// GET /docs (contract 8.2): the API's description for people, with a form for each route.
import type { Reply } from '../http/reply.ts';
import type { Context, Services } from '../route.ts';

/** 200, the page with its policy. A browser asks for it again each time, so that both fit. */
export function showDocs(_context: Context, services: Services): Reply {
  // 8.2
  const { html, policy } = services.page;
  const headers = ['Content-Security-Policy', policy];
  headers.push('Referrer-Policy', 'no-referrer', 'Cache-Control', 'no-cache');
  return { status: 200, type: 'text/html; charset=utf-8', body: html, headers, isStatic: true };
}
