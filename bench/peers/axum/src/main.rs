// axum with tokio-postgres and jsonwebtoken: the measured routes as an experienced Rust programmer
// writes them. Statements are prepared once per connection. Requests are pipelined over the
// connections, so none waits for a free one. One thread, because the contestants have one core.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::sync::OnceCell;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

const TOKEN_LIFETIME_SECONDS: u64 = 3600;

static AUTH_USER: LazyLock<String> = LazyLock::new(|| env("AUTH_USER"));
static AUTH_PASSWORD: LazyLock<String> = LazyLock::new(|| env("AUTH_PASSWORD"));
static AUTH_NAME: LazyLock<String> = LazyLock::new(|| env("AUTH_NAME"));
static SIGNING: LazyLock<EncodingKey> =
    LazyLock::new(|| EncodingKey::from_secret(env("SIGNING_SECRET").as_bytes()));
static VERIFYING: LazyLock<DecodingKey> =
    LazyLock::new(|| DecodingKey::from_secret(env("SIGNING_SECRET").as_bytes()));
static HEADER: LazyLock<Header> = LazyLock::new(|| Header::new(Algorithm::HS256));
static VALIDATION: LazyLock<Validation> = LazyLock::new(|| {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.leeway = 0;
    validation
});
static NOTE: LazyLock<Bytes> = LazyLock::new(|| {
    let note = serde_json::json!({ "title": env("NOTE_TITLE"), "contents": env("NOTE_CONTENTS") });
    Bytes::from(note.to_string())
});

#[derive(Serialize)]
struct User {
    id: i32,
    name: String,
    email: String,
}

#[derive(Deserialize)]
struct Login {
    id: String,
    pw: String,
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
    email: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    id: String,
    name: String,
    iat: u64,
    exp: u64,
}

/// The statements, by their index in `STATEMENTS`.
const LIST: usize = 0;
const FIND: usize = 1;
const CREATE: usize = 2;
const CHANGE: usize = 3;
const REMOVE: usize = 4;
const STATEMENTS: [&str; 5] = [
    "select id, name, email from users order by id",
    "select id, name, email from users where id = $1",
    "insert into users (name, email) values ($1, $2) returning id, name, email",
    "update users set name = coalesce($2, name), email = coalesce($3, email)
     where id = $1 returning id, name, email",
    "delete from users where id = $1 returning id, name, email",
];

/// A connection and its prepared statements.
struct Connection {
    client: Client,
    statements: Vec<Statement>,
}

/// Connects at the first use, because not every scenario has a database.
#[derive(Default)]
struct Pool {
    connections: OnceCell<Vec<Connection>>,
    turn: AtomicUsize,
}

type Store = State<&'static Pool>;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let pool: &'static Pool = Box::leak(Box::default());
    let app = Router::new()
        .route("/", get("Hello, World!\n"))
        .route("/token", post(post_token))
        .route("/notes", get(get_notes))
        .route("/users", get(list_users).post(create_user))
        .route(
            "/users/{id}",
            get(get_user).patch(patch_user).delete(delete_user),
        )
        .with_state(pool);
    let port: u16 = env("PORT").parse().expect("PORT");
    let listener = tokio::net::TcpListener::bind(("::", port))
        .await
        .expect("bind");
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await.expect("serve");
}

async fn post_token(body: Bytes) -> Result<Response, Refusal> {
    let login: Login =
        serde_json::from_slice(&body).map_err(|_| Refusal::BadRequest("Bad Request"))?;
    if !is_equal(&login.id, &AUTH_USER) || !is_equal(&login.pw, &AUTH_PASSWORD) {
        return Err(Refusal::Unauthorized);
    }
    let iat = jsonwebtoken::get_current_timestamp();
    let claims = Claims {
        id: login.id,
        name: AUTH_NAME.clone(),
        iat,
        exp: iat + TOKEN_LIFETIME_SECONDS,
    };
    let token = jsonwebtoken::encode(&HEADER, &claims, &SIGNING).map_err(|_| Refusal::Internal)?;
    Ok(Json(serde_json::json!({ "token": token })).into_response())
}

async fn get_notes(request: Request) -> Result<Response, Refusal> {
    let claims = authorization(&request)
        .and_then(|value| value.strip_prefix("Bearer "))
        .and_then(|token| jsonwebtoken::decode::<Claims>(token, &VERIFYING, &VALIDATION).ok())
        .ok_or(Refusal::Unauthorized)?
        .claims;
    if claims.id != *AUTH_USER || claims.name != *AUTH_NAME {
        return Err(Refusal::Unauthorized);
    }
    Ok(([(CONTENT_TYPE, "application/json")], NOTE.clone()).into_response())
}

async fn list_users(State(pool): Store) -> Result<Json<Vec<User>>, Refusal> {
    let rows = pool.query(LIST, &[]).await?;
    Ok(Json(rows.iter().map(User::from).collect()))
}

async fn create_user(State(pool): Store, body: Bytes) -> Result<Response, Refusal> {
    let change = read_change(&body, true)?;
    let user = pool.one(CREATE, &[&change.name, &change.email]).await?;
    let location = format!("/users/{}", user.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(user)).into_response())
}

async fn get_user(State(pool): Store, Path(id): Path<i32>) -> Result<Json<User>, Refusal> {
    pool.one(FIND, &[&id]).await.map(Json)
}

async fn patch_user(
    State(pool): Store,
    Path(id): Path<i32>,
    body: Bytes,
) -> Result<Json<User>, Refusal> {
    let change = read_change(&body, false)?;
    let values: [&(dyn ToSql + Sync); 3] = [&id, &change.name, &change.email];
    pool.one(CHANGE, &values).await.map(Json)
}

async fn delete_user(State(pool): Store, Path(id): Path<i32>) -> Result<Json<User>, Refusal> {
    pool.one(REMOVE, &[&id]).await.map(Json)
}

impl Pool {
    /// Runs the statement on the next connection.
    async fn query(
        &self,
        statement: usize,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Refusal> {
        let connections = self.connections.get_or_try_init(connect_all).await?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let Connection { client, statements } = &connections[turn % connections.len()];
        Ok(client.query(&statements[statement], values).await?)
    }

    async fn one(&self, statement: usize, values: &[&(dyn ToSql + Sync)]) -> Result<User, Refusal> {
        let rows = self.query(statement, values).await?;
        rows.first().map(User::from).ok_or(Refusal::NotFound)
    }
}

async fn connect_all() -> Result<Vec<Connection>, tokio_postgres::Error> {
    let mut connections = Vec::new();
    for _ in 0..8 {
        let (client, connection) = tokio_postgres::connect(&env("DATABASE_URL"), NoTls).await?;
        tokio::spawn(connection);
        let mut statements = Vec::new();
        for text in STATEMENTS {
            statements.push(client.prepare(text).await?);
        }
        connections.push(Connection { client, statements });
    }
    Ok(connections)
}

impl From<&Row> for User {
    fn from(row: &Row) -> User {
        User {
            id: row.get(0),
            name: row.get(1),
            email: row.get(2),
        }
    }
}

fn read_change(body: &[u8], is_whole: bool) -> Result<Change, Refusal> {
    let change: Change =
        serde_json::from_slice(body).map_err(|_| Refusal::BadRequest("Bad Request"))?;
    let is_right = change.name.as_deref().map_or(!is_whole, is_name)
        && change.email.as_deref().map_or(!is_whole, is_email);
    if !is_right {
        return Err(Refusal::BadRequest("name or email is invalid"));
    }
    Ok(change)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= 100 && !text.contains('\0')
}

fn is_email(text: &str) -> bool {
    let is_allowed = |c: char| !c.is_whitespace() && !c.is_control();
    text.chars().count() <= 100
        && text.chars().all(is_allowed)
        && text.split_once('@').is_some_and(|(before, after)| {
            !before.is_empty() && !after.is_empty() && !after.contains('@')
        })
}

fn authorization(request: &Request) -> Option<&str> {
    request.headers().get(AUTHORIZATION)?.to_str().ok()
}

fn is_equal(given: &str, right: &str) -> bool {
    given.as_bytes().ct_eq(right.as_bytes()).into()
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

enum Refusal {
    BadRequest(&'static str),
    Unauthorized,
    NotFound,
    Internal,
}

impl From<tokio_postgres::Error> for Refusal {
    fn from(err: tokio_postgres::Error) -> Refusal {
        match err.code() {
            Some(&SqlState::UNIQUE_VIOLATION) => Refusal::BadRequest("email is taken"),
            _ => Refusal::Internal,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::BadRequest(reason) => (StatusCode::BAD_REQUEST, reason).into_response(),
            Refusal::Unauthorized => {
                let challenge = [(WWW_AUTHENTICATE, "Bearer")];
                (StatusCode::UNAUTHORIZED, challenge, "Unauthorized").into_response()
            }
            Refusal::NotFound => (StatusCode::NOT_FOUND, "no such user").into_response(),
            Refusal::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error").into_response()
            }
        }
    }
}
