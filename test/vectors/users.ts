// Edge values of users, their ids, entity tags and queries (contract 4.2, 4.3, 4.8, 4.9, 4.11, 4.12), by
// what they are. Read by test/user.test.ts, test/contract/schema.test.ts and the model of section 4.

// White_Space in PropList.txt of Unicode 16. Written out, because the code has ranges.
export const WHITE_SPACE = [
  0x9, 0xa, 0xb, 0xc, 0xd, 0x20, 0x85, 0xa0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005,
  0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000,
];
export const CONTROLS = Array.from({ length: 0xa0 }, (_, i) => i).filter(
  (i) => i < 0x20 || i >= 0x7f,
);
const hex = (code: number) => `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;

export type Vectors<T> = Readonly<Record<string, T>>;

const NOT_STRINGS: Vectors<unknown> = {
  null: null,
  'a number': 1,
  'a list': ['a@b'],
  'an object with toString': { toString: 'a@b' },
};

export const NAMES: Field = {
  accepted: {
    'one character': 'A',
    'one character of two UTF-16 units': '😀',
    '100 characters': 'x'.repeat(100),
    '100 characters of two UTF-16 units': '😀'.repeat(100),
    'decomposed letters': 'Jo\u0308rg',
    'a space': ' ',
    'spaces around': '  Ada  ',
    'control characters': '\u0001\t\n\r\u001f\u007f\u0085',
    'right-to-left and invisible letters': 'א\u202e\u200d\ufeff\u2028\u2029',
    'quotes, backslashes, SQL and HTML': `'"\\; drop table users; --"<script>\\`,
    'a Postgres array': '{"a",null}',
    'the word null': 'null',
  },
  refused: {
    ...NOT_STRINGS,
    empty: '',
    '101 characters': 'x'.repeat(101),
    '101 characters of two UTF-16 units': '😀'.repeat(101),
    'U+0000': '\0',
    'a lone high surrogate': '\ud83d',
    'a lone low surrogate': '\udfffA',
  },
};

export const EMAILS: Field = {
  accepted: {
    'three characters': 'a@b',
    'three characters of two UTF-16 units': '😀@😀',
    '100 characters': `${'x'.repeat(98)}@b`,
    '100 characters of two UTF-16 units': `${'😀'.repeat(98)}@d`,
    capitals: 'A@b',
    'percent and underscore': '%_@like.example',
    'beyond ASCII': 'ådä@exämple.日本',
    'a composed letter': 'é@b',
    'a decomposed letter': 'e\u0301@b',
    'quotes, backslashes and slashes': `"o'r\\"+x.y/z\\@..e`,
    'a zero width space, which is not White_Space': 'a\u200b@b',
    'a zero width no-break space, which is not either': 'a@\ufeffb',
    'a Mongolian vowel separator, which is not either': 'a\u180e@b',
    'U+00A1, which follows the last control and space': '\u00a1@b',
    'a fullwidth at sign, which is not @': 'a@b＠c',
    'what GLOB treats specially, and the ends of ASCII': '!~-]^[*?\\@[-*?!~',
    'neighbours of white space': '\u167f\u1681\u1fff\u2027\u202a\u2fff@b',
  },
  refused: {
    ...NOT_STRINGS,
    empty: '',
    'two characters': '@b',
    '101 characters': `${'x'.repeat(99)}@b`,
    '101 characters of two UTF-16 units': `${'😀'.repeat(99)}@b`,
    'no at sign': 'ada.example.org',
    'two at signs': 'a@b@c',
    'nothing before the at sign': '@example.org',
    'nothing after the at sign': 'ada@',
    ...Object.fromEntries(
      [...new Set([...WHITE_SPACE, ...CONTROLS])].flatMap((code) => [
        [`${hex(code)} in the middle`, `a${String.fromCodePoint(code)}a@b`],
        [`${hex(code)} at the end`, `a@b${String.fromCodePoint(code)}`],
      ]),
    ),
  },
};

interface Field {
  readonly accepted: Vectors<string>;
  readonly refused: Vectors<unknown>;
  readonly default?: string | null; // of an absent field; without it, the field is required
}

/** The fields of a user in the order of its JSON. */
export const FIELDS: Vectors<Field> = { name: NAMES, email: EMAILS };

/** The members of a user's JSON by the number of the representation (4.16). A published line never changes. */
export const REPRESENTATIONS: Readonly<Record<number, readonly string[]>> = {
  1: ['id', 'name', 'email'],
};

/** JSON of a body that is not an object (4.12). */
export const NOT_OBJECTS: Vectors<string> = {
  'an array of a user': '[{"name":"Ada","email":"a@b"}]',
  'a string': '"Ada"',
  'a number': '1',
  null: 'null',
  nothing: '',
};

/** Spellings of an id in a path, by whether they mean that id (2.7, 4.9). */
export const IDS = {
  same: {
    itself: (id) => `${id}`,
    'with a trailing slash': (id) => `${id}/`,
    'percent-encoded': (id) => `${id}`.replace(/./g, '%3$&'),
    'with a query': (id) => `${id}?limit=0&email=x`,
  },
  other: {
    'with a minus': (id) => `-${id}`,
    'with a leading zero': (id) => `0${id}`,
    'with a letter after it': (id) => `${id}x`,
    'with a newline after it': (id) => `${id}%0A`,
    'in fullwidth digits': (id) => `${id}`.replace(/./g, '%EF%BC%9$&'),
    'with an escaped slash': (id) => `${id}%2F`,
    zero: () => '0',
    'that no user has': () => '999999',
    '2^53 - 1': () => '9007199254740991',
    '2^53': () => '9007199254740992',
    'a thousand digits': () => '1'.repeat(1000),
  },
} as const satisfies Vectors<Vectors<(id: number) => string>>;

const next = (tag: string) => tag.replace(/^\d+/, (number) => `${Number(number) + 1}`);

/**
 * Values of If-Match and If-None-Match by what they contain, given a tag without its quotes: which of the two
 * comparisons match that tag (RFC 9110 8.8.3.2, 13.1). `version` ones name its version in another
 * representation, which only If-Match accepts (4.16).
 */
export const TAG_LISTS = {
  strong: {
    'the tag': (tag) => `"${tag}"`,
    'an asterisk': () => '*',
    'an asterisk with space around': () => ' * ',
    'a list that ends with the tag': (tag) => `"x", "${tag}"`,
    'tabs and spaces': (tag) => `\t"x" \t, \t"${tag}" `,
    'RFC 9110 5.6.1: empty elements': (tag) => `, ,"x",, ,"${tag}",`,
    'the tag weak and strong': (tag) => `W/"${tag}", "${tag}"`,
    'a comma in another tag': (tag) => `"x,y", "${tag}"`,
    'a backslash, which escapes nothing': (tag) => `"\\", "${tag}"`,
    'the ends of its characters': (tag) => `"!#~\x80\xff", "${tag}"`,
    'a malformed tag after the tag': (tag) => `"${tag}", x`,
  },
  weak: { 'the tag marked weak': (tag) => `W/"${tag}"` },
  version: {
    'the tag of the next representation': (tag) => `"${next(tag)}"`,
    'a list with a representation of two digits': (tag) => `"x", "1${tag}"`,
    'the version alone': (tag) => `"${tag.replace(/^.*-/, '')}"`,
  },
  neither: {
    nothing: () => '',
    'no version': (tag) => `"${tag.replace(/-.*$/, '-')}"`,
    'no representation': (tag) => `"${tag.replace(/^.*-/, '-')}"`,
    'representation 0': (tag) => `"${tag.replace(/^.*-/, '0-')}"`,
    'two representations': (tag) => `"1-${tag}"`,
    'the next representation, weak': (tag) => `W/"${next(tag)}"`,
    'another tag': () => '"x"',
    'longer versions': (tag) => `"${tag}0", "${tag.replace('-', '-1')}"`,
    'a leading zero': (tag) => `"0${tag}"`,
    'a comma after it in the tag': (tag) => `"${tag},"`,
    'a number that no user has': () => `"${'9'.repeat(40)}"`,
    'version 0': () => '"0"',
    'a space after it in the tag': (tag) => `"${tag} "`,
    'no quotes': (tag) => tag,
    'a small w': (tag) => `w/"${tag}"`,
    'a space after W/': (tag) => `W/ "${tag}"`,
    'two tags without a comma': (tag) => `"${tag}" "${tag}"`,
    'text after the tag': (tag) => `"${tag}"x`,
    'a malformed tag before the tag': (tag) => `x, "${tag}"`,
    'a quoted asterisk': () => '"*"',
  },
} as const satisfies Vectors<Vectors<(tag: string) => string>>;

/** Queries of `GET /users` with an invalid or repeated parameter (4.2). */
export const REFUSED_QUERIES = [
  ...['limit=0', 'limit=1001', 'limit=-1', 'limit=1.5', 'limit=1e2', 'limit=%201', 'limit='],
  ...['limit', 'limit=01', 'limit=%EF%BC%91', 'limit=1%0A', `limit=${'1'.repeat(40)}`],
  ...['limit=1&limit=1', 'limit=1&%6cimit=1', 'limit=1=1', 'limit&limit=1', 'limit=1&after=x'],
  ...['after=-1', 'after=9007199254740992', 'after=0&after=1', 'email=a@b&email=a@b'],
  ...['email=a@b&limit=0', 'email=', 'email', 'email=a%20b@x', 'email=a%00@b', 'limit=%zz'],
  ...['email=%ff@x', 'x=%zz', '%', `email=${'%F0%9F%98%80'.repeat(500)}`],
];

export const IGNORED_QUERIES = [
  ...['', 'x=1', 'x=1&x=2', 'Limit=0', 'offset=3', 'order=name', '=', '&&', 'limits=0'],
  ...['constructor=1', '__proto__=1', '?limit=0', ';limit=0', 'limit%20=0', 'x'.repeat(9000)],
];
