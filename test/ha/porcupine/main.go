// Checks that a history of calls is linearizable: `porcupine FILE`, with a call in each line as JSON. Users are checked
// one by one, and so are emails. A call of unknown outcome ends after all others: in the last place, it had no effect.
// A status that no step expects refutes the history.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Call is one request. Times are in nanoseconds.
type Call struct {
	Key     string // the user or the email that it is about
	Kind    string // create, get, patch, delete of a user; claim, find, release of an email
	Start   int64
	End     int64 // 0: no response
	Client  int
	Status  int // 0: unknown outcome
	ID      int // the user that was created or found, or is deleted; 0: none
	IfMatch int // expected version; 0: any
	Version int // of the response
	Name    string
}

// User is the state of one user; version 0: it does not exist.
type User struct {
	Version int
	Name    string
}

func stepUser(state, input, _ any) (bool, any) {
	user, call := state.(User), input.(Call)
	exists := user.Version > 0
	matches := exists && (call.IfMatch == 0 || call.IfMatch == user.Version)
	switch call.Kind {
	case "create":
		return !exists, User{1, call.Name}
	case "get":
		isSeen := call.Status == 200 && user == User{call.Version, call.Name}
		return isSeen || call.Status == 404 && !exists, user
	}
	next := User{}
	if call.Kind == "patch" {
		next = User{user.Version + 1, call.Name}
	}
	switch call.Status {
	case 404:
		return !exists, user
	case 412:
		return exists && !matches, user
	case 200: // A response to a deletion has the user as it was, without a tag.
		return matches && call.Version == next.Version, next
	}
	if call.Status == 0 && matches {
		return true, next
	}
	return call.Status == 0, user
}

// The state of an email is the id of its owner; 0: it is free. A claim of unknown outcome gives it to an owner with a
// negative number, until someone sees the id.
func stepEmail(state, input, _ any) (bool, any) {
	owner, call := state.(int), input.(Call)
	switch {
	case call.Kind == "find" && call.ID != 0:
		return owner == call.ID || owner < 0, call.ID
	case call.Kind == "find":
		return owner == 0, owner
	case call.Kind == "claim" && call.Status == 400:
		return owner != 0, owner
	case call.Kind == "claim" && call.Status == 201:
		return owner == 0, call.ID
	case call.Kind == "claim" && call.Status == 0 && owner == 0:
		return true, -1
	case call.Kind == "release" && call.Status == 404:
		return owner != call.ID, owner
	case call.Kind == "release" && (call.Status == 200 || call.Status == 0 && owner == call.ID):
		return owner == call.ID, 0
	}
	return call.Status == 0, owner
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	histories := map[string][]porcupine.Operation{}
	count := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var call Call
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			panic(err)
		}
		end := call.End
		if call.Status == 0 {
			end = math.MaxInt64
		}
		operation := porcupine.Operation{ClientId: call.Client, Input: call, Call: call.Start, Return: end}
		histories[call.Key] = append(histories[call.Key], operation)
		count++
	}
	failed := 0
	for key, history := range histories {
		model := porcupine.Model{Init: func() any { return User{} }, Step: stepUser}
		if strings.Contains(key, "@") {
			model = porcupine.Model{Init: func() any { return 0 }, Step: stepEmail}
		}
		result := porcupine.CheckOperationsTimeout(model, history, 10*time.Minute)
		if result == porcupine.Ok {
			continue
		}
		failed++
		fmt.Printf("%s is not linearizable (%s):\n", key, result)
		for _, operation := range history {
			fmt.Printf("  %+v\n", operation.Input)
		}
	}
	fmt.Printf("%d calls on %d keys, %d keys not linearizable\n", count, len(histories), failed)
	if failed > 0 {
		os.Exit(1)
	}
}
