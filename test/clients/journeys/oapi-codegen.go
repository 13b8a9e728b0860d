// The journey with the client from oapi-codegen. Prints it as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"journey/oapi"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	url, user, password := os.Args[1], os.Args[2], os.Args[3]
	ctx := context.Background()
	api := must(oapi.NewClientWithResponses(url))

	token := must(api.IssueTokenWithResponse(ctx, nil, oapi.Credentials{Id: user, Pw: password}))
	bearer := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+token.JSON200.Token)
		return nil
	}
	basic := func(_ context.Context, req *http.Request) error {
		req.SetBasicAuth(user, password)
		return nil
	}
	protected := must(api.GreetCallerWithResponse(ctx, nil, basic))

	fields := oapi.UserFields{Name: "Ada", Email: "ada@example.com"}
	created := must(api.CreateUserWithResponse(ctx, nil, fields, bearer))
	ada := created.JSON201.Id
	tag := created.HTTPResponse.Header.Get("ETag")
	name := "Ada Lovelace"
	change := oapi.UserChange{Name: &name}
	ifMatch := &oapi.PatchUserParams{IfMatch: &tag}
	patched := must(api.PatchUserWithResponse(ctx, ada, ifMatch, change, bearer))
	stale := must(api.PatchUserWithResponse(ctx, ada, ifMatch, change, bearer))

	fields = oapi.UserFields{Name: "Bob", Email: "bob@example.com"}
	must(api.CreateUserWithResponse(ctx, nil, fields, bearer))
	limit, after := 1, int64(0)
	page := must(api.ListUsersWithResponse(ctx, &oapi.ListUsersParams{Limit: &limit, After: &after}, bearer))
	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"protected": string(protected.Body),
		"created":   []any{created.StatusCode(), created.JSON201.Email, tag},
		"patched":   []any{patched.StatusCode(), patched.JSON200.Name, patched.HTTPResponse.Header.Get("ETag")},
		"stale":     []any{stale.StatusCode(), string(stale.Body)},
		"page":      []any{(*page.JSON200)[0].Name, page.HTTPResponse.Header.Get("Link")},
	}))
}
