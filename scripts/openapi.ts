// Writes openapi.json, the document that GET /openapi.json answers with. The tests compare.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openapi } from '../src/openapi.ts';
import { routes } from '../src/routes.ts';

writeFileSync(join(import.meta.dirname, '../openapi.json'), openapi(routes));
