// The loops of GReLU on a CPU: one call for its forward pass and one for its backward pass. The
// equations in torch make sixty passes over the features, each of which costs more than its
// arithmetic; these loops make five.
//
// Plain C functions, called from `__init__.py`: arrays come first, then whole numbers, then others.
// An array that may be missing is null. The equations are those of `functional.py`.
// Sums have a fixed order, whatever the number of threads: the same input gives the same bits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

// The compiler makes a version of each loop for wider vector units, and the loader chooses.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

using Real = REAL;  // float or double

namespace {

constexpr int64_t ROWS = 512;          // of a chunk
constexpr int64_t BLOCK = 256;         // rows of a block, at least
constexpr int LANES = 16;              // partial sums of a dot product
constexpr int64_t PARALLEL = 1 << 15;  // rows of a product, or numbers of features, worth threads

// Calls `run(i)` for all i below `count`. Each thread takes consecutive ones, as those of torch do:
// its part of the features may still be in its cache.
template <class Run>
void each(int64_t count, int64_t threads, Run run) {
    if (threads > 1 && count > 1) {
#pragma omp parallel for num_threads(static_cast<int>(threads))
        for (int64_t i = 0; i < count; i++) run(i);
    } else {
        for (int64_t i = 0; i < count; i++) run(i);
    }
}

// Rows of one graph; a large graph has several chunks.
struct Chunk {
    int64_t graph, begin, end;
};

// Sums of each graph, `width` numbers, from those of its chunks.
void add_up(const std::vector<Chunk>& chunks, const std::vector<Real>& parts, int64_t width,
            Real* sums) {
    for (size_t k = 0; k < chunks.size(); k++) {
        Real* own = sums + chunks[k].graph * width;
        for (int64_t c = 0; c < width; c++) own[c] += parts[k * width + c];
    }
}

WIDE void project_rows(const Real* __restrict x, const Real* __restrict weight,
                       const Real* __restrict mass, int64_t begin, int64_t end, int64_t channels,
                       Real* __restrict logits, Real* __restrict total) {
    for (int64_t n = begin; n < end; n++) {
        const Real* row = x + n * channels;
        const Real m = mass[n];
        Real lanes[LANES] = {};
        Real sum = Real(0);
        int64_t c = 0;
        for (; c + LANES <= channels; c += LANES)
            for (int j = 0; j < LANES; j++) {
                lanes[j] += row[c + j] * weight[c + j];
                total[c + j] += m * row[c + j];
            }
        for (; c < channels; c++) {
            sum += row[c] * weight[c];
            total[c] += m * row[c];
        }
        for (int j = 0; j < LANES; j++) sum += lanes[j];
        logits[n] = sum;
    }
}

WIDE void project_rows_backward(const Real* __restrict x, const Real* __restrict weight,
                                const Real* __restrict mass, const Real* __restrict grad_logits,
                                const Real* __restrict grad_total, int64_t begin, int64_t end,
                                int64_t channels, Real* __restrict grad_x,
                                Real* __restrict grad_weight) {
    for (int64_t n = begin; n < end; n++) {
        const Real* row = x + n * channels;
        Real* out = grad_x + n * channels;
        const Real grad = grad_logits[n], m = mass[n];
        for (int64_t c = 0; c < channels; c++) {
            out[c] += grad * weight[c] + m * grad_total[c];
            grad_weight[c] += grad * row[c];
        }
    }
}

// `parameters` are the slopes a0, a1 and the intercepts b0, b1 of a graph, `channels` each; the base
// slopes are 1 and `slope`.
WIDE void apply_rows(const Real* __restrict x, const Real* __restrict gamma,
                     const Real* __restrict parameters, Real slope, int64_t begin, int64_t end,
                     int64_t channels, Real* __restrict out) {
    const Real *a0 = parameters, *a1 = a0 + channels, *b0 = a1 + channels, *b1 = b0 + channels;
    for (int64_t n = begin; n < end; n++) {
        const Real* row = x + n * channels;
        Real* to = out + n * channels;
        const Real weight = gamma[n];
        for (int64_t c = 0; c < channels; c++) {
            const Real first = row[c] + weight * (a0[c] * row[c] + b0[c]);
            const Real second = slope * row[c] + weight * (a1[c] * row[c] + b1[c]);
            // Both are NaN where x is.
            to[c] = second >= first ? second : first;
        }
    }
}

WIDE void apply_rows_backward(const Real* __restrict grad, const Real* __restrict x,
                              const Real* __restrict gamma, const Real* __restrict parameters,
                              Real slope, int64_t begin, int64_t end, int64_t channels,
                              Real* __restrict grad_x, Real* __restrict grad_gamma,
                              Real* __restrict sums) {
    const Real *a0 = parameters, *a1 = a0 + channels, *b0 = a1 + channels, *b1 = b0 + channels;
    Real *sum_a0 = sums, *sum_a1 = sum_a0 + channels, *sum_b0 = sum_a1 + channels,
          *sum_b1 = sum_b0 + channels;
    for (int64_t n = begin; n < end; n++) {
        const Real *row = x + n * channels, *from = grad + n * channels;
        Real* to = grad_x + n * channels;
        const Real weight = gamma[n];
        auto entry = [&](int64_t c, Real& sum) {
            const Real line0 = a0[c] * row[c] + b0[c], line1 = a1[c] * row[c] + b1[c];
            // A tie goes to the later segment, as ReLU's does at zero.
            const bool later = slope * row[c] + weight * line1 >= row[c] + weight * line0;
            Real grad0 = later ? Real(0) : from[c], grad1 = later ? from[c] : Real(0);
            to[c] = grad0 * (Real(1) + weight * a0[c]) + grad1 * (slope + weight * a1[c]);
            sum += grad0 * line0 + grad1 * line1;
            grad0 *= weight;
            grad1 *= weight;
            sum_a0[c] += grad0 * row[c];
            sum_a1[c] += grad1 * row[c];
            sum_b0[c] += grad0;
            sum_b1[c] += grad1;
        };
        Real lanes[LANES] = {};
        Real sum = Real(0);
        int64_t c = 0;
        for (; c + LANES <= channels; c += LANES)
            for (int j = 0; j < LANES; j++) entry(c + j, lanes[j]);
        for (; c < channels; c++) entry(c, sum);
        for (int j = 0; j < LANES; j++) sum += lanes[j];
        grad_gamma[n] = sum;
    }
}

// exp(x) for x <= 0 to two units in the last place, in a form that compilers vectorise (Cephes).
inline float exponential(float x) {
    x = std::max(x, -87.0f);
    const float whole = std::floor(x * 1.44269504f + 0.5f);
    const float r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

inline double exponential(double x) { return std::exp(x); }

// tanh(x) close to zero, where 1 - exp would cancel (Cephes).
inline float tangent_near_zero(float x) {
    const float z = x * x;
    float y = -5.70498872745e-3f;
    y = y * z + 2.06390887954e-2f;
    y = y * z - 5.37397155531e-2f;
    y = y * z + 1.33314422036e-1f;
    y = y * z - 3.33332819422e-1f;
    return y * z * x + x;
}

inline double tangent_near_zero(double x) {
    const double z = x * x;
    const double above = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z -
                         1.61468768441708447952e3;
    const double below = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z +
                         4.84406305325125486048e3;
    return above / below * z * x + x;
}

inline Real tangent(Real x) {
    const Real e = exponential(Real(-2) * std::abs(x));
    const Real far = std::copysign((Real(1) - e) / (Real(1) + e), x);
    return std::abs(x) < Real(0.625) ? tangent_near_zero(x) : far;
}

// The parameters of one graph. `weight` and `bias` are those of the channel MLP, [4, channels].
WIDE void map_channels(const Real* __restrict mean, const Real* __restrict weight,
                       const Real* __restrict bias, const bool* __restrict kept, Real scale,
                       int64_t channels, Real* __restrict parameters) {
    for (int64_t k = 0; k < 4 * channels; k += channels) {
        for (int64_t c = 0; c < channels; c++)
            parameters[k + c] = tangent(scale * (bias[k + c] + weight[k + c] * mean[c]));
        for (int64_t c = 0; kept != nullptr && c < channels; c++) parameters[k + c] *= kept[c];
    }
}

// From the gradient of a graph's parameters to that of its mean, adding to those of the weights.
WIDE void map_channels_backward(Real* __restrict grad, const Real* __restrict parameters,
                                const Real* __restrict mean, const Real* __restrict weight,
                                const bool* __restrict kept, Real scale, int64_t channels,
                                Real* __restrict grad_mean, Real* __restrict grad_weight,
                                Real* __restrict grad_bias) {
    for (int64_t k = 0; k < 4 * channels; k += channels) {
        for (int64_t c = 0; kept != nullptr && c < channels; c++) grad[k + c] *= kept[c];
        for (int64_t c = 0; c < channels; c++) {
            const Real parameter = parameters[k + c];
            const Real own = grad[k + c] * (Real(1) - parameter * parameter) * scale;
            grad_mean[c] += own * weight[k + c];
            grad_weight[k + c] += own * mean[c];
            grad_bias[k + c] += own;
        }
    }
}

// N softmax(z / T) of one graph.
WIDE void softmax(const Real* __restrict logits, int64_t count, Real temperature,
                  Real* __restrict out) {
    Real largest = logits[0];
    for (int64_t n = 1; n < count; n++) largest = std::max(largest, logits[n]);
    for (int64_t n = 0; n < count; n++) out[n] = exponential((logits[n] - largest) / temperature);
    double sum = 0.0;
    for (int64_t n = 0; n < count; n++) sum += out[n];
    const Real scale = static_cast<Real>(count / sum);
    for (int64_t n = 0; n < count; n++) out[n] *= scale;
}

// min(m, N softmax(z / T)) of one graph, of the nodes that dropout keeps.
void weigh(const Real* logits, const bool* kept, int64_t count, Real temperature, Real most,
           Real* gamma) {
    if (count == 0) return;
    softmax(logits, count, temperature, gamma);
    for (int64_t n = 0; n < count; n++) gamma[n] = std::min(gamma[n], most);
    for (int64_t n = 0; kept != nullptr && n < count; n++) gamma[n] *= kept[n];
}

void weigh_backward(const Real* logits, const bool* kept, Real* grad, int64_t count,
                    Real temperature, Real most, Real* grad_logits) {
    if (count == 0) return;
    softmax(logits, count, temperature, grad_logits);
    for (int64_t n = 0; kept != nullptr && n < count; n++) grad[n] *= kept[n];
    double mean = 0.0;
    for (int64_t n = 0; n < count; n++)
        if (grad_logits[n] <= most) mean += static_cast<double>(grad_logits[n]) * grad[n];
    const Real centre = static_cast<Real>(mean / count);
    for (int64_t n = 0; n < count; n++)
        grad_logits[n] *= ((grad_logits[n] <= most ? grad[n] : Real(0)) - centre) / temperature;
}

// The normalised adjacency matrix in compressed rows.
struct Matrix {
    const int32_t *rowptr, *col;
    const Real* value;

    // out = alpha * x + (1 - alpha) * A @ current, in one column.
    void multiply(int64_t begin, int64_t end, const Real* x, const Real* current, Real alpha,
                  Real* out) const {
        for (int64_t n = begin; n < end; n++) {
            Real sum = Real(0);
            for (int32_t e = rowptr[n]; e < rowptr[n + 1]; e++) sum += value[e] * current[col[e]];
            out[n] = alpha * x[n] + (Real(1) - alpha) * sum;
        }
    }

    // The diffusion by power iteration of rows that are linked to no others. `scratch` has room
    // for two more columns of `nodes`.
    void diffuse(int64_t begin, int64_t end, const Real* x, Real alpha, int64_t steps,
                 int64_t threads, int64_t nodes, Real* scratch, Real* out) const {
        const Real* from = x;
        for (int64_t step = 1; step <= steps; step++) {
            Real* to = step == steps ? out : scratch + step % 2 * nodes;
            if (end - begin < PARALLEL) multiply(begin, end, x, from, alpha, to);
            else
                each((end - begin + ROWS - 1) / ROWS, threads, [&](int64_t k) {
                    const int64_t first = begin + k * ROWS;
                    multiply(first, std::min(first + ROWS, end), x, from, alpha, to);
                });
            from = to;
        }
    }
};

// Graphs that know nothing of others make blocks: all steps for one come before the next, so that
// its features stay in the cache. A large graph, or one with edges to another, leaves a single
// block, whose steps the threads share.
struct Blocks {
    std::vector<int64_t> starts;  // the first node of each graph, and the number of all nodes
    std::vector<int64_t> firsts;  // the first graph of each block, and the number of all graphs
    int64_t threads;

    // Without a `batch` there is one graph. Whatever it holds, `starts` ascends.
    Blocks(const int64_t* batch, const Matrix& matrix, int64_t nodes, int64_t channels,
           int64_t graphs, int64_t most_threads)
        : starts(graphs + 1, nodes), firsts{0},
          threads(nodes * channels < PARALLEL ? 1 : most_threads) {
        int64_t graph = 0;
        if (batch == nullptr) starts[0] = 0;
        else
            for (int64_t n = 0; n < nodes; n++)
                while (graph <= graphs && graph <= batch[n]) starts[graph++] = n;
        bool is_apart = true;
        for (graph = 0; graph < graphs; graph++) {
            const int64_t begin = starts[firsts.back()], end = starts[graph + 1];
            is_apart &= 8 * size(graph) <= nodes;
            if (end - begin < BLOCK && graph + 1 < graphs) continue;
            for (int32_t e = matrix.rowptr[begin]; is_apart && e < matrix.rowptr[end]; e++)
                is_apart = matrix.col[e] >= begin && matrix.col[e] < end;
            firsts.push_back(graph + 1);
        }
        if (!is_apart) firsts = {0, graphs};
    }

    int64_t count() const { return static_cast<int64_t>(firsts.size()) - 1; }

    int64_t size(int64_t graph) const { return starts[graph + 1] - starts[graph]; }

    // Calls `run` with the number of each block, its first graph, the next block's, and the threads
    // for its steps.
    template <class Run>
    void each_block(Run run) const {
        if (count() == 1) return run(0, 0, firsts[1], threads);
        // Of few blocks, some are larger: a thread takes the next when it is done.
#pragma omp parallel for num_threads(static_cast<int>(threads)) if (threads > 1) schedule(dynamic)
        for (int64_t b = 0; b < count(); b++) run(b, firsts[b], firsts[b + 1], 1);
    }

    std::vector<Chunk> chunks_of(int64_t first, int64_t last) const {
        std::vector<Chunk> chunks;
        for (int64_t g = first; g < last; g++)
            for (int64_t begin = starts[g]; begin < starts[g + 1]; begin += ROWS)
                chunks.push_back({g, begin, std::min(begin + ROWS, starts[g + 1])});
        return chunks;
    }
};

}  // namespace

extern "C" {

void grelu_forward(const Real* x, const Real* node_weight, const Real* channel_weight,
                   const Real* channel_bias, const Real* mass, const int32_t* rowptr,
                   const int32_t* col, const Real* value, const int64_t* batch,
                   const bool* kept_nodes, const bool* kept_channels, Real* out, Real* mean,
                   Real* parameters, Real* logits, Real* gamma, int64_t nodes, int64_t channels,
                   int64_t graphs, int64_t steps, int64_t threads, Real alpha, Real scale,
                   Real temperature, Real most, Real slope) {
    const Matrix matrix{rowptr, col, value};
    const Blocks blocks(batch, matrix, nodes, channels, graphs, threads);
    std::fill(mean, mean + graphs * channels, Real(0));
    const std::unique_ptr<Real[]> columns(new Real[3 * nodes]);
    Real *projected = columns.get(), *scratch = projected + nodes;
    blocks.each_block([&](int64_t, int64_t first, int64_t last, int64_t threads) {
        const auto chunks = blocks.chunks_of(first, last);
        const int64_t count = static_cast<int64_t>(chunks.size());
        std::vector<Real> parts(count * channels, Real(0));
        each(count, threads, [&](int64_t k) {
            project_rows(x, node_weight, mass, chunks[k].begin, chunks[k].end, channels, projected,
                         &parts[k * channels]);
        });
        add_up(chunks, parts, channels, mean);
        const int64_t begin = blocks.starts[first], end = blocks.starts[last];
        matrix.diffuse(begin, end, projected, alpha, steps, threads, nodes, scratch, logits);
        each(last - first, threads, [&](int64_t i) {
            const int64_t g = first + i, start = blocks.starts[g], size = blocks.size(g);
            Real* own = mean + g * channels;
            for (int64_t c = 0; c < channels; c++) own[c] /= std::max<int64_t>(1, size);
            map_channels(own, channel_weight, channel_bias, kept_channels, scale, channels,
                         parameters + g * 4 * channels);
            weigh(logits + start, kept_nodes ? kept_nodes + start : nullptr, size, temperature,
                  most, gamma + start);
        });
        each(count, threads, [&](int64_t k) {
            apply_rows(x, gamma, parameters + chunks[k].graph * 4 * channels, slope,
                       chunks[k].begin, chunks[k].end, channels, out);
        });
    });
}

void grelu_backward(const Real* grad, const Real* x, const Real* node_weight,
                    const Real* channel_weight, const Real* mean, const Real* parameters,
                    const Real* logits, const Real* gamma, const Real* mass, const int32_t* rowptr,
                    const int32_t* col, const Real* value, const int64_t* batch,
                    const bool* kept_nodes, const bool* kept_channels, Real* grad_x,
                    Real* grad_node_weight, Real* grad_channel_weight, Real* grad_channel_bias,
                    int64_t nodes, int64_t channels, int64_t graphs, int64_t steps,
                    int64_t threads, Real alpha, Real scale, Real temperature, Real most,
                    Real slope) {
    const Matrix matrix{rowptr, col, value};
    const Blocks blocks(batch, matrix, nodes, channels, graphs, threads);
    const int64_t width = 4 * channels;
    // Of each block, for the weights of the nodes, and the weight and the bias of the channels.
    std::vector<Real> sums(blocks.count() * 9 * channels, Real(0));
    const std::unique_ptr<Real[]> columns(new Real[5 * nodes]);
    Real *grad_gamma = columns.get(), *grad_logits = grad_gamma + nodes,
         *diffused = grad_logits + nodes, *scratch = diffused + nodes;
    blocks.each_block([&](int64_t block, int64_t first, int64_t last, int64_t threads) {
        Real* sum = &sums[block * 9 * channels];
        auto chunks = blocks.chunks_of(first, last);
        const int64_t count = static_cast<int64_t>(chunks.size()), own = last - first;
        for (auto& chunk : chunks) chunk.graph -= first;
        std::vector<Real> parts(count * width, Real(0)), grad_map(own * width, Real(0)),
            grad_mean(own * channels, Real(0));
        each(count, threads, [&](int64_t k) {
            apply_rows_backward(grad, x, gamma, parameters + (first + chunks[k].graph) * width,
                                slope, chunks[k].begin, chunks[k].end, channels, grad_x,
                                grad_gamma, &parts[k * width]);
        });
        add_up(chunks, parts, width, grad_map.data());
        each(own, threads, [&](int64_t i) {
            const int64_t start = blocks.starts[first + i];
            weigh_backward(logits + start, kept_nodes ? kept_nodes + start : nullptr,
                           grad_gamma + start, blocks.size(first + i), temperature, most,
                           grad_logits + start);
        });
        matrix.diffuse(blocks.starts[first], blocks.starts[last], grad_logits, alpha, steps,
                       threads, nodes, scratch, diffused);
        for (int64_t i = 0; i < own; i++) {
            Real* own_mean = &grad_mean[i * channels];
            map_channels_backward(&grad_map[i * width], parameters + (first + i) * width,
                                  mean + (first + i) * channels, channel_weight, kept_channels,
                                  scale, channels, own_mean, sum + channels,
                                  sum + channels + width);
            for (int64_t c = 0; c < channels; c++)
                own_mean[c] /= std::max<int64_t>(1, blocks.size(first + i));
        }
        std::fill(parts.begin(), parts.end(), Real(0));
        each(count, threads, [&](int64_t k) {
            project_rows_backward(x, node_weight, mass, diffused,
                                  &grad_mean[chunks[k].graph * channels], chunks[k].begin,
                                  chunks[k].end, channels, grad_x, &parts[k * channels]);
        });
        for (auto& chunk : chunks) chunk.graph = 0;
        add_up(chunks, parts, channels, sum);
    });
    const auto total = [&](int64_t begin, int64_t size, Real* out) {
        std::fill(out, out + size, Real(0));
        for (int64_t block = 0; block < blocks.count(); block++)
            for (int64_t c = 0; c < size; c++) out[c] += sums[block * 9 * channels + begin + c];
    };
    total(0, channels, grad_node_weight);
    total(channels, width, grad_channel_weight);
    total(channels + width, width, grad_channel_bias);
}

void grelu_diffuse(const Real* x, const int32_t* rowptr, const int32_t* col, const Real* value,
                   Real* out, int64_t nodes, int64_t steps, int64_t threads, Real alpha) {
    const std::unique_ptr<Real[]> scratch(new Real[2 * nodes]);
    Matrix{rowptr, col, value}.diffuse(0, nodes, x, alpha, steps, threads, nodes, scratch.get(),
                                       out);
}

// Whether all edges join nodes of one graph, with weights that are finite and not negative.
int grelu_check(const int64_t* source, const int64_t* target, const int64_t* batch,
                const Real* weight, int64_t edges, int64_t nodes) {
    for (int64_t e = 0; e < edges; e++) {
        const int64_t s = source[e], t = target[e];
        if (s < 0 || s >= nodes || t < 0 || t >= nodes) return 0;
        if (!(weight[e] >= Real(0) && std::isfinite(weight[e]))) return 0;
        if (batch != nullptr && batch[s] != batch[t]) return 0;
    }
    return 1;
}

// The normalised adjacency matrix D^-1/2 A D^-1/2 in compressed rows, which are targets, sorted by
// row and then by column; and its transpose. Duplicates stay, in their order. Returns 1 where both
// are the same, and 0 where not; -1 for an edge whose ends are not among the nodes.
int grelu_prepare(const int64_t* source, const int64_t* target, const Real* weight, int32_t* rowptr,
                  int32_t* col, Real* value, int32_t* rowptr_t, int32_t* col_t, Real* value_t,
                  int64_t edges, int64_t nodes) {
    std::vector<double> scale(nodes, 0.0);
    std::fill(rowptr, rowptr + nodes + 1, 0);
    std::fill(rowptr_t, rowptr_t + nodes + 1, 0);
    for (int64_t e = 0; e < edges; e++) {
        const int64_t s = source[e], t = target[e];
        if (s < 0 || s >= nodes || t < 0 || t >= nodes) return -1;
        scale[t] += weight[e];
        rowptr[t + 1]++;
        rowptr_t[s + 1]++;
    }
    for (double& degree : scale) degree = degree == 0.0 ? 0.0 : 1.0 / std::sqrt(degree);
    std::partial_sum(rowptr, rowptr + nodes + 1, rowptr);
    std::partial_sum(rowptr_t, rowptr_t + nodes + 1, rowptr_t);

    // Each pass sorts by one end, and keeps the order of edges with the same: the first by source,
    // the second by target and the third by source again. They carry the edges along: where
    // 20,000 were looked up, all took half as long again.
    std::vector<int32_t> place(rowptr_t, rowptr_t + nodes), ends(edges);
    std::vector<Real> weights(edges);
    for (int64_t e = 0; e < edges; e++) {
        const int32_t i = place[source[e]]++;
        ends[i] = static_cast<int32_t>(target[e]);
        weights[i] = weight[e];
    }
    place.assign(rowptr, rowptr + nodes);
    for (int64_t s = 0; s < nodes; s++)
        for (int32_t i = rowptr_t[s]; i < rowptr_t[s + 1]; i++) {
            const int32_t t = ends[i], k = place[t]++;
            col[k] = static_cast<int32_t>(s);
            // The product of both scales commutes: a symmetric graph stays symmetric bit for bit.
            value[k] = static_cast<Real>(weights[i] * (scale[s] * scale[t]));
        }
    place.assign(rowptr_t, rowptr_t + nodes);
    for (int64_t t = 0; t < nodes; t++)
        for (int32_t k = rowptr[t]; k < rowptr[t + 1]; k++) {
            const int32_t i = place[col[k]]++;
            col_t[i] = static_cast<int32_t>(t);
            value_t[i] = value[k];
        }
    return std::equal(rowptr, rowptr + nodes + 1, rowptr_t) &&
           std::equal(col, col + edges, col_t) && std::equal(value, value + edges, value_t);
}

}  // extern "C"
